"""Asks whose access token `ACCESS_TOKEN` is."""

import os
from base64 import b64encode

import grpc

from auth.v1.introspection_pb2 import IntrospectRequest
from auth.v1.introspection_pb2_grpc import IntrospectionServiceStub

credentials = b64encode(f"api:{os.environ['GATEPOST_API_SECRET']}".encode()).decode()
with grpc.insecure_channel(os.environ["GATEPOST_GRPC"]) as channel:
    introspection = IntrospectionServiceStub(channel)
    request = IntrospectRequest(token=os.environ["ACCESS_TOKEN"])
    result = introspection.Introspect(request, metadata=(("authorization", f"Basic {credentials}"),))
print(f"active: {result.sub}" if result.active else "not active")
