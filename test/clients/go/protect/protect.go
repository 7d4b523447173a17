package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// ErrInvalidToken says that a token is not good. Any other error says that this cannot be told at the moment.
var ErrInvalidToken = errors.New("the access token is not good")

// Verify returns the id of the user that the token was issued to.
type Verify func(ctx context.Context, token string) (user string, err error)

// Protect lets only requests with a good access token through to the handler, which is given the user's id.
func Protect(verify Verify, handle func(w http.ResponseWriter, r *http.Request, user string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token = strings.TrimSpace(token)
		user, err := "", ErrInvalidToken
		if strings.EqualFold(scheme, "Bearer") && token != "" {
			user, err = verify(r.Context(), token)
		}
		switch {
		case err == nil:
			handle(w, r, user)
		case errors.Is(err, ErrInvalidToken):
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}
