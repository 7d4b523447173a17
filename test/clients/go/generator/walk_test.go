// Package generator walks through both services with the clients of openapi-generator's `go`.
package generator

import (
	"context"
	"net/http"
	"testing"
	"time"

	"gatepost.example/clients/gen/generator/auth"
	"gatepost.example/clients/gen/generator/push"
	"gatepost.example/clients/world"
)

func as(t *testing.T, client, secret string) context.Context {
	return context.WithValue(t.Context(), auth.ContextBasicAuth, auth.BasicAuth{UserName: client, Password: secret})
}

func asUser(t *testing.T, token string) context.Context {
	return context.WithValue(t.Context(), push.ContextAccessToken, token)
}

// answered ends the test unless the status is the expected one. For a refusal the client returns an error as well.
func answered(t *testing.T, response *http.Response, err error, status int) {
	t.Helper()
	if response == nil {
		t.Fatal(err)
	}
	world.Equal(t, "status", response.StatusCode, status)
	if status < 300 && err != nil {
		t.Fatal(err)
	}
}

func TestWalk(t *testing.T) {
	authConfiguration := auth.NewConfiguration()
	authConfiguration.Servers = auth.ServerConfigurations{{URL: world.AuthURL}}
	authClient := auth.NewAPIClient(authConfiguration)
	pushConfiguration := push.NewConfiguration()
	pushConfiguration.Servers = push.ServerConfigurations{{URL: world.PushURL}}
	pushClient := push.NewAPIClient(pushConfiguration)
	internal := as(t, world.Internal, world.InternalSecret)
	backend := as(t, world.Backend, world.BackendSecret)
	api := as(t, world.API, world.APISecret)

	user, phone := world.NewID("generator"), world.NewPhone()
	creation := *auth.NewIdentityCreation(user, phone)
	created, response, err := authClient.IdentitiesAPI.CreateIdentity(internal).IdentityCreation(creation).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "id", created.Id, user)
	_, response, err = authClient.IdentitiesAPI.CreateIdentity(internal).IdentityCreation(creation).Execute()
	answered(t, response, err, http.StatusConflict)
	found, response, err := authClient.IdentitiesAPI.FindIdentityByPhone(internal).Phone(phone).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "found id", found.Id, user)

	first, response, err := authClient.OAuthAPI.GenerateTokens(backend).GrantType("auth").AuthId(user).Execute()
	answered(t, response, err, http.StatusOK)
	active, response, err := authClient.OAuthAPI.IntrospectToken(api).Token(first.AccessToken).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "active", active.Active, true)
	world.Equal(t, "sub", active.GetSub(), user)
	world.Equal(t, "clientId", active.GetClientId(), world.Backend)
	inactive, response, err := authClient.OAuthAPI.IntrospectToken(api).Token("garbage").Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "active of garbage", inactive.Active, false)
	pair, response, err := authClient.OAuthAPI.GenerateTokens(backend).GrantType("refresh_token").
		RefreshToken(first.RefreshToken).Execute()
	answered(t, response, err, http.StatusOK)

	password := world.NewID("password")
	operator := asUser(t, world.AccessToken(t, world.Backoffice, world.BackofficeSecret, world.CreateUser(t, password), password))
	app := asUser(t, pair.AccessToken)
	device := *push.NewPushToken(world.NewID("device"), time.Now().AddDate(1, 0, 0).Format(time.RFC3339))
	response, err = pushClient.DevicesAPI.SavePushToken(app).PushToken(device).BarrierUserUtcOffset("+05:30").Execute()
	answered(t, response, err, http.StatusNoContent)
	title := world.NewID("Hello")
	notification := *push.NewPushNotification(title, "From Go", []int32{330})
	response, err = pushClient.SendingAPI.SendPushNotification(operator).PushNotification(notification).Execute()
	answered(t, response, err, http.StatusNoContent)
	id := response.Header.Get("Notification-Id")
	world.Eventually(t, "the notification is in the history", func() bool {
		page, response, err := pushClient.HistoryAPI.GetNotificationsHistory(app).MarkViewed(true).Size(50).Execute()
		answered(t, response, err, http.StatusOK)
		for _, entry := range page.Content {
			if entry.Notification.Title == title {
				world.Equal(t, "userId", entry.UserId, user)
				return true
			}
		}
		return false
	})
	progress, response, err := pushClient.OperationAPI.GetNotification(operator, id).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "title", progress.Title, title)

	content := *push.NewNotificationTexts()
	content.SetTexts(map[string]push.NotificationText{"en": *push.NewNotificationText("On its way", "It comes tomorrow.")})
	content.SetLink("https://shop.example.com/orders/4711")
	content.SetData(map[string]string{"orderId": "4711"})
	audience := *push.NewAudience()
	audience.SetUsers([]string{user})
	creating := *push.NewNotificationCreation(audience, content)
	made, response, err := pushClient.SendingAPI.CreateNotification(operator).NotificationCreation(creating).Execute()
	answered(t, response, err, http.StatusCreated)
	page, response, err := pushClient.HistoryAPI.GetNotificationsHistory(app).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "id", page.Content[0].Id, made.Id)
	world.Equal(t, "data", page.Content[0].GetData()["orderId"], "4711")

	_, response, err = authClient.OAuthAPI.RevokeToken(backend).Token(pair.RefreshToken).Execute()
	answered(t, response, err, http.StatusOK)
	revoked, response, err := authClient.OAuthAPI.IntrospectToken(api).Token(pair.AccessToken).Execute()
	answered(t, response, err, http.StatusOK)
	world.Equal(t, "active after the revocation", revoked.Active, false)
	response, err = authClient.IdentitiesAPI.DeleteIdentity(internal, user).Execute()
	answered(t, response, err, http.StatusNoContent)
}
