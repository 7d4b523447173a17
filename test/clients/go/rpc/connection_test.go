package rpc

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	authv1 "gatepost.example/clients/gen/proto/auth/v1"
	"gatepost.example/clients/world"
)

// pingCounter counts the PINGs of keepalive, whose data are zeros, on a connection that has nothing else to send.
type pingCounter struct {
	net.Conn
	pings *atomic.Int32
}

func (c pingCounter) Write(frame []byte) (int, error) {
	if len(frame) == 17 && frame[3] == 6 && frame[4] == 0 && frame[9] == 0 {
		c.pings.Add(1)
	}
	return c.Conn.Write(frame)
}

// dial connects to addresses, the first that is there. The count is of connections.
func dial(t *testing.T, addresses []string, pings *atomic.Int32) (*grpc.ClientConn, *atomic.Int32) {
	t.Helper()
	servers := manual.NewBuilderWithScheme("servers")
	state := resolver.State{}
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	servers.InitialState(state)
	connections := new(atomic.Int32)
	connection, err := grpc.NewClient("servers:///gatepost",
		grpc.WithResolvers(servers),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				connections.Add(1)
			}
			return pingCounter{connection, pings}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection, connections
}

func introspect(ctx context.Context, connection *grpc.ClientConn, token string, options ...grpc.CallOption) codes.Code {
	request := &authv1.IntrospectRequest{Token: token}
	_, err := authv1.NewIntrospectionServiceClient(connection).Introspect(ctx, request, options...)
	return status.Code(err)
}

// hold begins an introspection that lasts until its message is sent.
func hold(t *testing.T, ctx context.Context, connection *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	method := authv1.IntrospectionService_Introspect_FullMethodName
	call, err := connection.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func asAPI(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", world.Basic(world.API, world.APISecret))
}

// Three PINGs, ten seconds apart, are one more than servers endure that count them (gRFC A8).
func TestKeepalive(t *testing.T) {
	t.Parallel()
	pings := new(atomic.Int32)
	connection, connections := dial(t, []string{world.GRPCAddress}, pings)
	ctx, stop := context.WithTimeout(t.Context(), 36*time.Second)
	defer stop()
	watch, err := grpc_health_v1.NewHealthClient(connection).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	health, err := watch.Recv()
	world.Equal(t, "error", err, nil)
	world.Equal(t, "health", health.Status, grpc_health_v1.HealthCheckResponse_SERVING)
	_, err = watch.Recv()
	world.Equal(t, "end of the watch", status.Code(err), codes.DeadlineExceeded)
	world.Equal(t, "PINGs", pings.Load(), 3)
	world.Equal(t, "a call after them", introspect(asAPI(t.Context()), connection, "none"), codes.OK)
	world.Equal(t, "connections", connections.Load(), 1)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	connection, connections := dial(t, []string{world.GRPCAddress}, new(atomic.Int32))
	ctx := asAPI(t.Context())
	world.Equal(t, "more than 64 KiB", introspect(ctx, connection, strings.Repeat("x", 65_536)), codes.ResourceExhausted)
	long := metadata.AppendToOutgoingContext(ctx, "x-long", strings.Repeat("x", 16_384))
	world.Equal(t, "headers of more than 16 KiB", introspect(long, connection, "none"), codes.Internal)

	late, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	world.Equal(t, "past its deadline", status.Code(hold(t, late, connection).RecvMsg(new(authv1.IntrospectResponse))), codes.DeadlineExceeded)
	cancelled, cancel := context.WithCancel(ctx)
	call := hold(t, cancelled, connection)
	cancel()
	world.Equal(t, "cancelled", status.Code(call.RecvMsg(new(authv1.IntrospectResponse))), codes.Canceled)
	patient, stop := context.WithTimeout(ctx, 48*time.Hour)
	defer stop()
	world.Equal(t, "in two days", introspect(patient, connection, "none"), codes.OK)
	world.Equal(t, "connections", connections.Load(), 1)
}

// TestDrain ends a server of its own, while the other one stays.
func TestDrain(t *testing.T) {
	draining := os.Getenv("GATEPOST_DRAINING_GRPC")
	server, err := strconv.Atoi(os.Getenv("GATEPOST_DRAINING_PID"))
	if err != nil {
		t.Fatal(err)
	}
	connection, connections := dial(t, []string{draining, world.GRPCAddress}, new(atomic.Int32))
	ctx := asAPI(t.Context())
	held := hold(t, ctx, connection)
	var callers sync.WaitGroup
	terminate := sync.OnceFunc(func() { syscall.Kill(server, syscall.SIGTERM) })
	for range 8 {
		callers.Go(func() {
			for reached := ""; reached != world.GRPCAddress; terminate() {
				var to peer.Peer
				if code := introspect(ctx, connection, "none", grpc.Peer(&to)); code != codes.OK {
					t.Errorf("a call during the drain: %v", code)
					return
				}
				reached = to.Addr.String()
			}
		})
	}
	callers.Wait()
	if err := held.SendMsg(&authv1.IntrospectRequest{Token: "none"}); err != nil {
		t.Fatal(err)
	}
	held.CloseSend()
	world.Equal(t, "the call in flight", status.Code(held.RecvMsg(new(authv1.IntrospectResponse))), codes.OK)
	world.Equal(t, "connections", connections.Load(), 2)
	alone, _ := dial(t, []string{draining}, new(atomic.Int32))
	world.Equal(t, "a new call to it alone", introspect(ctx, alone, "none"), codes.Unavailable)
}
