package world

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// request sends a body with the credentials, and ends the test unless it is a success.
func request(t *testing.T, method, address, contentType, authorization, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Authorization", authorization)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s: %s", method, address, response.Status, text)
	}
	response.Body = io.NopCloser(strings.NewReader(string(text)))
	return response
}

// Basic is the Authorization header of a client.
func Basic(client, secret string) string {
	request := http.Request{Header: http.Header{}}
	request.SetBasicAuth(client, secret)
	return request.Header.Get("Authorization")
}

// CreateUser creates an identity with a password and returns the id.
func CreateUser(t *testing.T, password string) string {
	t.Helper()
	id, internal := NewID("go"), Basic(Internal, InternalSecret)
	identity, _ := json.Marshal(map[string]string{"id": id, "phone": NewPhone()})
	request(t, http.MethodPost, AuthURL+"/v1/identities", "application/json", internal, string(identity))
	secret, _ := json.Marshal(map[string]string{"password": password})
	request(t, http.MethodPut, AuthURL+"/v1/identities/"+id+"/password", "application/json", internal, string(secret))
	return id
}

// AccessToken signs a user in with a password.
func AccessToken(t *testing.T, client, secret, username, password string) string {
	t.Helper()
	form := url.Values{"grant_type": {"password"}, "username": {username}, "password": {password}}
	answer := request(t, http.MethodPost, AuthURL+"/oauth2/v1/tokens", "application/x-www-form-urlencoded",
		Basic(client, secret), form.Encode())
	var pair struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&pair); err != nil {
		t.Fatal(err)
	}
	return pair.AccessToken
}

// Send sends a notification to an offset at which nobody lives, and returns its id.
func Send(t *testing.T, token, title string) string {
	t.Helper()
	body, _ := json.Marshal(map[string]any{"title": title, "message": "From Go", "utcOffsets": []int{-720}})
	answer := request(t, http.MethodPost, PushURL+"/v1/pushprovider/push", "application/json", "Bearer "+token, string(body))
	return answer.Header.Get("Notification-Id")
}
