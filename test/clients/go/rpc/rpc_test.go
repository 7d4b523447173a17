// Package rpc calls both gRPC services with grpc-go, and with connect-go over all of its protocols.
package rpc

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	authv1 "gatepost.example/clients/gen/proto/auth/v1"
	"gatepost.example/clients/gen/proto/auth/v1/authv1connect"
	pushv1 "gatepost.example/clients/gen/proto/push/v1"
	"gatepost.example/clients/gen/proto/push/v1/pushv1connect"
	"gatepost.example/clients/world"
)

// services is what both libraries offer, in one form. An error has a code of gRPC.
type services struct {
	introspect func(ctx context.Context, authorization, token string) (*authv1.IntrospectResponse, codes.Code)
	// watch returns the last progress of the stream.
	watch  func(ctx context.Context, authorization, notification string) (*pushv1.NotificationProgress, codes.Code)
	create func(ctx context.Context, authorization string, request *pushv1.CreateNotificationRequest) (*pushv1.CreateNotificationResponse, codes.Code)
}

func TestGRPC(t *testing.T) {
	connection, err := grpc.NewClient(world.GRPCAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	introspection := authv1.NewIntrospectionServiceClient(connection)
	delivery := pushv1.NewDeliveryServiceClient(connection)
	notifications := pushv1.NewNotificationServiceClient(connection)
	with := func(ctx context.Context, authorization string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	walk(t, services{
		introspect: func(ctx context.Context, authorization, token string) (*authv1.IntrospectResponse, codes.Code) {
			answer, err := introspection.Introspect(with(ctx, authorization), &authv1.IntrospectRequest{Token: token})
			return answer, status.Code(err)
		},
		watch: func(ctx context.Context, authorization, notification string) (last *pushv1.NotificationProgress, code codes.Code) {
			request := &pushv1.WatchProgressRequest{NotificationId: notification}
			stream, err := delivery.WatchProgress(with(ctx, authorization), request)
			for err == nil {
				var answer *pushv1.WatchProgressResponse
				if answer, err = stream.Recv(); err == nil {
					last = answer.Progress
				}
			}
			if err == io.EOF {
				return last, codes.OK
			}
			return last, status.Code(err)
		},
		create: func(ctx context.Context, authorization string, request *pushv1.CreateNotificationRequest) (*pushv1.CreateNotificationResponse, codes.Code) {
			answer, err := notifications.CreateNotification(with(ctx, authorization), request)
			return answer, status.Code(err)
		},
	})
}

func TestConnect(t *testing.T) {
	http1 := http.DefaultClient
	cleartext := new(http.Protocols)
	cleartext.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: cleartext}}
	origin := strings.TrimSuffix(world.AuthURL, "/api/auth")
	for _, protocol := range []struct {
		name   string
		client *http.Client
		url    string
		option connect.ClientOption
	}{
		{"Connect with binary messages", http1, origin, connect.WithClientOptions()},
		{"Connect with JSON", http1, origin, connect.WithProtoJSON()},
		{"gRPC-Web", http1, origin, connect.WithGRPCWeb()},
		{"gRPC", http2, "http://" + world.GRPCAddress, connect.WithGRPC()},
	} {
		t.Run(protocol.name, func(t *testing.T) {
			introspection := authv1connect.NewIntrospectionServiceClient(protocol.client, protocol.url, protocol.option)
			delivery := pushv1connect.NewDeliveryServiceClient(protocol.client, protocol.url, protocol.option)
			notifications := pushv1connect.NewNotificationServiceClient(protocol.client, protocol.url, protocol.option)
			walk(t, services{
				introspect: func(ctx context.Context, authorization, token string) (*authv1.IntrospectResponse, codes.Code) {
					request := connect.NewRequest(&authv1.IntrospectRequest{Token: token})
					request.Header().Set("Authorization", authorization)
					answer, err := introspection.Introspect(ctx, request)
					if err != nil {
						return nil, codes.Code(connect.CodeOf(err))
					}
					return answer.Msg, codes.OK
				},
				watch: func(ctx context.Context, authorization, notification string) (last *pushv1.NotificationProgress, code codes.Code) {
					request := connect.NewRequest(&pushv1.WatchProgressRequest{NotificationId: notification})
					request.Header().Set("Authorization", authorization)
					stream, err := delivery.WatchProgress(ctx, request)
					if err == nil {
						defer stream.Close()
						for stream.Receive() {
							last = stream.Msg().Progress
						}
						err = stream.Err()
					}
					if err != nil {
						return last, codes.Code(connect.CodeOf(err))
					}
					return last, codes.OK
				},
				create: func(ctx context.Context, authorization string, message *pushv1.CreateNotificationRequest) (*pushv1.CreateNotificationResponse, codes.Code) {
					request := connect.NewRequest(message)
					request.Header().Set("Authorization", authorization)
					answer, err := notifications.CreateNotification(ctx, request)
					if err != nil {
						return nil, codes.Code(connect.CodeOf(err))
					}
					return answer.Msg, codes.OK
				},
			})
		})
	}
}

func walk(t *testing.T, services services) {
	t.Helper()
	password := world.NewID("password")
	user := world.CreateUser(t, password)
	token := world.AccessToken(t, world.Backoffice, world.BackofficeSecret, user, password)
	api := world.Basic(world.API, world.APISecret)

	active, code := services.introspect(t.Context(), api, token)
	world.Equal(t, "code", code, codes.OK)
	world.Equal(t, "active", active.Active, true)
	world.Equal(t, "sub", active.Sub, user)
	world.Equal(t, "user_info.user_id", active.UserInfo.UserId, user)
	world.Equal(t, "client_id", active.ClientId, world.Backoffice)
	world.Equal(t, "token_type", active.TokenType, "Bearer")

	inactive, code := services.introspect(t.Context(), api, "garbage")
	world.Equal(t, "code of garbage", code, codes.OK)
	world.Equal(t, "active of garbage", inactive.Active, false)
	world.Equal(t, "sub of garbage", inactive.Sub, "")
	_, code = services.introspect(t.Context(), api, "")
	world.Equal(t, "code without a token", code, codes.Internal)
	_, code = services.introspect(t.Context(), world.Basic(world.API, "wrong"), token)
	world.Equal(t, "code of a wrong secret", code, codes.Unauthenticated)

	toUser := &pushv1.CreateNotificationRequest{
		Audience: &pushv1.Audience{Users: []string{user}},
		Content: &pushv1.NotificationTexts{
			Texts: map[string]*pushv1.NotificationText{"en": {Title: "On its way", Message: "It comes tomorrow."}},
			Data:  map[string]string{"orderId": "4711"},
		},
	}
	created, code := services.create(t.Context(), "Bearer "+token, toUser)
	world.Equal(t, "code of a notification to a user", code, codes.OK)
	last, code := services.watch(t.Context(), "Bearer "+token, created.Id)
	world.Equal(t, "code of its stream", code, codes.OK)
	world.Equal(t, "its title", last.Title, "On its way")
	_, code = services.create(t.Context(), "Bearer "+token, &pushv1.CreateNotificationRequest{Content: toUser.Content})
	world.Equal(t, "code without an audience", code, codes.InvalidArgument)

	title := world.NewID("Hello")
	notification := world.Send(t, token, title)
	last, code = services.watch(t.Context(), "Bearer "+token, notification)
	world.Equal(t, "code of the stream", code, codes.OK)
	world.Equal(t, "id", last.Id, notification)
	world.Equal(t, "title", last.Title, title)
	world.Equal(t, "state", last.State, pushv1.NotificationState_NOTIFICATION_STATE_COMPLETED)
	world.Equal(t, "remaining", last.Remaining, 0)
	_, code = services.watch(t.Context(), "Bearer "+token, "not-an-id")
	world.Equal(t, "code of a wrong id", code, codes.InvalidArgument)
	_, code = services.watch(t.Context(), "Bearer garbage", notification)
	world.Equal(t, "code of a wrong token", code, codes.Unauthenticated)
}
