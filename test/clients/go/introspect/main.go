// Program introspect asks whose access token ACCESS_TOKEN is.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	authv1 "gatepost.example/clients/gen/proto/auth/v1"
)

func main() {
	connection, err := grpc.NewClient(os.Getenv("GATEPOST_GRPC"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	credentials := base64.StdEncoding.EncodeToString([]byte("api:" + os.Getenv("GATEPOST_API_SECRET")))
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Basic "+credentials)

	introspection := authv1.NewIntrospectionServiceClient(connection)
	result, err := introspection.Introspect(ctx, &authv1.IntrospectRequest{Token: os.Getenv("ACCESS_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	if result.Active {
		fmt.Println("active:", result.Sub)
	} else {
		fmt.Println("not active")
	}
}
