// Package openapi walks through both services with the clients that oapi-codegen generates.
package openapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"gatepost.example/clients/gen/auth"
	"gatepost.example/clients/gen/push"
	"gatepost.example/clients/world"
)

// as sends a client's credentials with every request.
func as(client, secret string) auth.RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		request.SetBasicAuth(client, secret)
		return nil
	}
}

// bearer sends an access token with the request.
func bearer(token string) push.RequestEditorFn {
	return func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
}

func pointer[T any](value T) *T { return &value }

// Walk creates users, gets tokens, introspects, refreshes, sends, reads the history and revokes.
func Walk(t *testing.T, transport http.RoundTripper) {
	t.Helper()
	client := &http.Client{Transport: transport}
	identities, err := auth.NewClientWithResponses(world.AuthURL, auth.WithHTTPClient(client))
	if err != nil {
		t.Fatal(err)
	}
	devices, err := push.NewClientWithResponses(world.PushURL, push.WithHTTPClient(client))
	if err != nil {
		t.Fatal(err)
	}
	walk := &walk{T: t, auth: identities, push: devices}
	user, operator := walk.createUser(), walk.createOperator()
	first := walk.tokens(world.Backend, world.BackendSecret,
		auth.TokenRequest{GrantType: "auth", AuthId: &user})
	second := walk.refresh(user, first)
	walk.sendAndRead(user, second.AccessToken, operator)
	walk.revoke(second)
	walk.deleteUser(user)
}

type walk struct {
	*testing.T
	auth *auth.ClientWithResponses
	push *push.ClientWithResponses
}

func (w *walk) internal() auth.RequestEditorFn {
	return as(world.Internal, world.InternalSecret)
}

// answer is what all generated responses have in common.
type answer interface {
	StatusCode() int
	GetBody() []byte
}

// done ends the walk unless the request was answered, and with this status.
func (w *walk) done(err error, answer answer, status int) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	if answer.StatusCode() != status {
		w.Fatalf("status: got %d, want %d: %s", answer.StatusCode(), status, answer.GetBody())
	}
}

func (w *walk) createUser() string {
	id, phone := world.NewID("go"), world.NewPhone()
	created, err := w.auth.CreateIdentityWithResponse(w.Context(), nil, auth.CreateIdentityJSONRequestBody{
		Id:       id,
		Phone:    phone,
		Metadata: &map[string]any{"locale": "en-GB", "visits": 3},
	}, w.internal())
	w.done(err, created, http.StatusOK)
	world.Equal(w.T, "id", created.JSON200.Id, id)
	world.Equal(w.T, "phone", created.JSON200.Phone, phone)

	again, err := w.auth.CreateIdentityWithResponse(w.Context(), nil,
		auth.CreateIdentityJSONRequestBody{Id: id, Phone: world.NewPhone()}, w.internal())
	w.done(err, again, http.StatusConflict)
	world.Equal(w.T, "code", string(again.ApplicationproblemJSON409.Code), "identity_id_taken")

	found, err := w.auth.FindIdentityByPhoneWithResponse(w.Context(),
		&auth.FindIdentityByPhoneParams{Phone: phone}, w.internal())
	w.done(err, found, http.StatusOK)
	world.Equal(w.T, "found id", found.JSON200.Id, id)

	changed, err := w.auth.UpdateIdentityWithResponse(w.Context(), id, nil,
		auth.UpdateIdentityJSONRequestBody{Email: pointer(auth.Email(id + "@example.com"))}, w.internal())
	w.done(err, changed, http.StatusNoContent)

	read, err := w.auth.GetIdentityWithResponse(w.Context(), id, nil, w.internal())
	w.done(err, read, http.StatusOK)
	world.Equal(w.T, "email", string(world.Value(w.T, "email", read.JSON200.Email)), id+"@example.com")
	metadata := world.Value(w.T, "metadata", read.JSON200.Metadata)
	world.Equal(w.T, "metadata.visits", metadata["visits"].(float64), 3)
	world.Equal(w.T, "authenticationTypes",
		string(world.Value(w.T, "authenticationTypes", read.JSON200.AuthenticationTypes)[0]), "PHONE_OTP")

	cleared, err := w.auth.UpdateIdentityWithBodyWithResponse(w.Context(), id, nil,
		"application/json", strings.NewReader(`{"email":null}`), w.internal())
	w.done(err, cleared, http.StatusNoContent)
	read, err = w.auth.GetIdentityWithResponse(w.Context(), id, nil, w.internal())
	w.done(err, read, http.StatusOK)
	if read.JSON200.Email != nil {
		w.Fatalf("email: %s", *read.JSON200.Email)
	}
	return id
}

// createOperator returns the access token of somebody who may send notifications.
func (w *walk) createOperator() string {
	id, password := world.NewID("go-operator"), world.NewID("password")
	created, err := w.auth.CreateIdentityWithResponse(w.Context(), nil,
		auth.CreateIdentityJSONRequestBody{Id: id, Phone: world.NewPhone()}, w.internal())
	w.done(err, created, http.StatusOK)
	set, err := w.auth.SetIdentityPasswordWithResponse(w.Context(), id, nil,
		auth.SetIdentityPasswordJSONRequestBody{Password: password}, w.internal())
	w.done(err, set, http.StatusNoContent)
	return w.tokens(world.Backoffice, world.BackofficeSecret,
		auth.TokenRequest{GrantType: "password", Username: &id, Password: &password}).AccessToken
}

func (w *walk) tokens(client, secret string, request auth.TokenRequest) auth.TokenPair {
	w.Helper()
	answer, err := w.auth.GenerateTokensWithFormdataBodyWithResponse(w.Context(), nil, request, as(client, secret))
	w.done(err, answer, http.StatusOK)
	world.Equal(w.T, "token_type", string(answer.JSON200.TokenType), "Bearer")
	if answer.JSON200.ExpiresIn < 1 {
		w.Fatalf("expires_in: %d", answer.JSON200.ExpiresIn)
	}
	return *answer.JSON200
}

func (w *walk) introspect(token string) auth.Introspection {
	w.Helper()
	answer, err := w.auth.IntrospectTokenWithFormdataBodyWithResponse(w.Context(), nil,
		auth.TokenReference{Token: token}, as(world.API, world.APISecret))
	w.done(err, answer, http.StatusOK)
	return *answer.JSON200
}

// refresh introspects the first pair, and replaces it.
func (w *walk) refresh(user string, first auth.TokenPair) auth.TokenPair {
	active := w.introspect(first.AccessToken)
	world.Equal(w.T, "active", active.Active, true)
	world.Equal(w.T, "sub", world.Value(w.T, "sub", active.Sub), user)
	world.Equal(w.T, "userInfo.userId", world.Value(w.T, "userInfo", active.UserInfo).UserId, user)
	world.Equal(w.T, "clientId", world.Value(w.T, "clientId", active.ClientId), world.Backend)
	world.Equal(w.T, "tokenType", string(world.Value(w.T, "tokenType", active.TokenType)), "Bearer")
	if expiry := time.Unix(world.Value(w.T, "exp", active.Exp), 0); expiry.Before(time.Now()) {
		w.Fatalf("exp is past: %s", expiry)
	}
	if !slices.Contains(world.Value(w.T, "aud", active.Aud), world.Backend) {
		w.Fatalf("aud: %v", *active.Aud)
	}
	inactive := w.introspect("garbage")
	if inactive.Active || inactive.Sub != nil || inactive.Exp != nil {
		w.Fatalf("garbage: %+v", inactive)
	}

	second := w.tokens(world.Backend, world.BackendSecret,
		auth.TokenRequest{GrantType: "refresh_token", RefreshToken: &first.RefreshToken})
	if second.RefreshToken == first.RefreshToken {
		w.Fatal("the refresh token was not replaced")
	}
	refused, err := w.auth.GenerateTokensWithFormdataBodyWithResponse(w.Context(), nil,
		auth.TokenRequest{GrantType: "refresh_token", RefreshToken: pointer("garbage")},
		as(world.Backend, world.BackendSecret))
	w.done(err, refused, http.StatusBadRequest)
	world.Equal(w.T, "error", string(refused.JSON400.Error), "invalid_grant")
	return second
}

// sendAndRead saves a device, sends a notification to its offset, and reads it from the user's history.
func (w *walk) sendAndRead(user, token, operator string) {
	device := world.NewID("device")
	saved, err := w.push.SavePushTokenWithResponse(w.Context(),
		&push.SavePushTokenParams{BarrierUserUtcOffset: pointer("+05:30")},
		push.SavePushTokenJSONRequestBody{Token: device, Expiration: time.Now().AddDate(1, 0, 0).Format(time.RFC3339)}, bearer(token))
	w.done(err, saved, http.StatusNoContent)

	title := world.NewID("Hello")
	sent, err := w.push.SendPushNotificationWithResponse(w.Context(),
		&push.SendPushNotificationParams{IdempotencyKey: pointer(title)},
		push.SendPushNotificationJSONRequestBody{Title: title, Message: "From Go", UtcOffsets: []int{330}},
		bearer(operator))
	w.done(err, sent, http.StatusNoContent)
	notification := sent.Headers204.NotificationId

	world.Eventually(w.T, "the notification is in the history", func() bool {
		history, err := w.push.GetNotificationsHistoryWithResponse(w.Context(),
			&push.GetNotificationsHistoryParams{MarkViewed: pointer(true), Size: pointer(50)}, bearer(token))
		w.done(err, history, http.StatusOK)
		for _, entry := range history.JSON200.Content {
			if entry.Notification.Title != title {
				continue
			}
			world.Equal(w.T, "userId", entry.UserId, user)
			world.Equal(w.T, "message", entry.Notification.Message, "From Go")
			if time.Since(entry.SendAt).Abs() > time.Hour {
				w.Fatalf("sendAt: %s", entry.SendAt)
			}
			return true
		}
		return false
	})
	world.Eventually(w.T, "everything is viewed", func() bool {
		summary, err := w.push.GetNotificationsSummaryWithResponse(w.Context(), nil, bearer(token))
		w.done(err, summary, http.StatusOK)
		return summary.JSON200.Viewed
	})
	progress, err := w.push.GetNotificationWithResponse(w.Context(), notification, nil, bearer(operator))
	w.done(err, progress, http.StatusOK)
	world.Equal(w.T, "progress id", progress.JSON200.Id, notification)
	world.Equal(w.T, "progress title", progress.JSON200.Title, title)

	refused, err := w.push.GetNotificationWithResponse(w.Context(), notification, nil, bearer(token))
	w.done(err, refused, http.StatusForbidden)
	world.Equal(w.T, "code", string(refused.ApplicationproblemJSON403.Code), "forbidden")
	w.sendByName(user, token, operator)
	deleted, err := w.push.DeletePushTokenWithResponse(w.Context(), nil,
		push.DeletePushTokenJSONRequestBody{Token: &device}, bearer(token))
	w.done(err, deleted, http.StatusNoContent)
}

// sendByName sends to one user, with data.
func (w *walk) sendByName(user, token, operator string) {
	created, err := w.push.CreateNotificationWithResponse(w.Context(), nil, push.CreateNotificationJSONRequestBody{
		Audience: push.Audience{Users: &[]string{user}},
		Content: push.NotificationTexts{
			Texts: &map[string]push.NotificationText{"en": {Title: "On its way", Message: "It comes tomorrow."}},
			Link:  pointer("https://shop.example.com/orders/4711"),
			Data:  &map[string]string{"orderId": "4711"},
		},
		Delivery: &push.Delivery{TtlSeconds: pointer(3600)},
	}, bearer(operator))
	w.done(err, created, http.StatusCreated)
	world.Equal(w.T, "warnings", len(created.JSON201.Warnings), 0)
	world.Equal(w.T, "Notification-Id", created.Headers201.NotificationId, created.JSON201.Id)
	history, err := w.push.GetNotificationsHistoryWithResponse(w.Context(), nil, bearer(token))
	w.done(err, history, http.StatusOK)
	entry := history.JSON200.Content[0]
	world.Equal(w.T, "id", entry.Id, created.JSON201.Id)
	world.Equal(w.T, "title", entry.Notification.Title, "On its way")
	world.Equal(w.T, "link", world.Value(w.T, "link", entry.Link), "https://shop.example.com/orders/4711")
	world.Equal(w.T, "data", world.Value(w.T, "data", entry.Data)["orderId"], "4711")
}

func (w *walk) revoke(pair auth.TokenPair) {
	revoked, err := w.auth.RevokeTokenWithFormdataBodyWithResponse(w.Context(), nil,
		auth.TokenReference{Token: pair.RefreshToken}, as(world.Backend, world.BackendSecret))
	w.done(err, revoked, http.StatusOK)
	if revoked.JSON200.Message == "" {
		w.Fatal("the revocation is not confirmed")
	}
	world.Equal(w.T, "active after the revocation", w.introspect(pair.AccessToken).Active, false)
	refused, err := w.push.GetNotificationsSummaryWithResponse(w.Context(), nil, bearer(pair.AccessToken))
	w.done(err, refused, http.StatusUnauthorized)
	world.Equal(w.T, "code", string(refused.ApplicationproblemJSON401.Code), "unauthenticated")
}

func (w *walk) deleteUser(id string) {
	deleted, err := w.auth.DeleteIdentityWithResponse(w.Context(), id, nil, w.internal())
	w.done(err, deleted, http.StatusNoContent)
	gone, err := w.auth.GetIdentityWithResponse(w.Context(), id, nil, w.internal())
	w.done(err, gone, http.StatusNotFound)
	world.Equal(w.T, "code", string(gone.ApplicationproblemJSON404.Code), "identity_not_found")
}
