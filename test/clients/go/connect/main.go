// Program connect creates a user, signs it in and saves a device of it.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"gatepost.example/clients/gen/auth"
	"gatepost.example/clients/gen/push"
)

// register creates a user, and returns the user's tokens.
func register(ctx context.Context, id, phone string) (*auth.TokenPair, error) {
	client, err := auth.NewClientWithResponses(os.Getenv("GATEPOST_AUTH_URL"))
	if err != nil {
		return nil, err
	}
	identity := auth.CreateIdentityJSONRequestBody{Id: id, Phone: phone}
	created, err := client.CreateIdentityWithResponse(ctx, nil, identity,
		as("internal", os.Getenv("GATEPOST_INTERNAL_SECRET")))
	if err != nil {
		return nil, err
	}
	if created.JSON200 == nil {
		return nil, fmt.Errorf("the identity was not created: %s", created.Body)
	}
	grant := auth.GenerateTokensFormdataRequestBody{GrantType: "auth", AuthId: &id}
	issued, err := client.GenerateTokensWithFormdataBodyWithResponse(ctx, nil, grant,
		as("backend", os.Getenv("GATEPOST_BACKEND_SECRET")))
	if err != nil {
		return nil, err
	}
	if issued.JSON200 == nil {
		return nil, fmt.Errorf("no tokens were issued: %s", issued.Body)
	}
	return issued.JSON200, nil
}

// as sends a client's credentials along.
func as(client, secret string) auth.RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		request.SetBasicAuth(client, secret)
		return nil
	}
}

func saveDevice(ctx context.Context, accessToken, token string) error {
	client, err := push.NewClientWithResponses(os.Getenv("GATEPOST_PUSH_URL"))
	if err != nil {
		return err
	}
	bearer := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+accessToken)
		return nil
	}
	device := push.SavePushTokenJSONRequestBody{Token: token, Expiration: time.Now().AddDate(1, 0, 0).Format(time.RFC3339)}
	saved, err := client.SavePushTokenWithResponse(ctx, nil, device, bearer)
	if err != nil {
		return err
	}
	if saved.StatusCode() != http.StatusNoContent {
		return fmt.Errorf("the device was not saved: %s", saved.Body)
	}
	return nil
}

func main() {
	now := time.Now().UnixMilli()
	pair, err := register(context.Background(), fmt.Sprintf("u-%d", now), fmt.Sprintf("+1202%d", 2_000_000+now%8_000_000))
	if err != nil {
		log.Fatal(err)
	}
	if err := saveDevice(context.Background(), pair.AccessToken, fmt.Sprintf("device-%d", now)); err != nil {
		log.Fatal(err)
	}
}
