package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

var client = &http.Client{
	Timeout: 2 * time.Second,
	// The credentials go to auth, and nowhere else.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Introspect asks auth about the token: anew for each request, as a cached response knows of no revocation.
func Introspect(ctx context.Context, token string) (Token, error) {
	form := url.Values{"token": {token}}.Encode()
	endpoint := os.Getenv("GATEPOST_AUTH_URL") + "/oauth2/v1/introspect"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form))
	if err != nil {
		return Token{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth("api", os.Getenv("GATEPOST_API_SECRET"))
	response, err := client.Do(request)
	if err != nil {
		return Token{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return Token{}, fmt.Errorf("introspection gave %s", response.Status)
	}
	var result struct {
		Active   *bool    `json:"active"`
		Subject  string   `json:"sub"`
		Client   string   `json:"client_id"`
		Scope    string   `json:"scope"`
		Audience []string `json:"aud"`
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		return Token{}, err
	}
	if result.Active == nil {
		return Token{}, errors.New("the introspection does not say whether the token is active")
	}
	if !*result.Active || !slices.Contains(result.Audience, os.Getenv("GATEPOST_AUDIENCE")) {
		return Token{}, ErrInvalidToken
	}
	// A client that acts for no user.
	if result.Subject == result.Client {
		return Token{}, ErrInvalidToken
	}
	return Token{result.Subject, strings.Fields(result.Scope)}, nil
}
