package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ErrInvalidToken says that a token is not good. Any other error says that this cannot be told at the moment.
var ErrInvalidToken = errors.New("the access token is not good")

// Token is an access token that was found good.
type Token struct {
	User   string
	Scopes []string
}

// Verify finds out about a token.
type Verify func(ctx context.Context, token string) (Token, error)

type contextKey struct{}

// TokenOf is the token of a request that Protect has let in. It panics for any other.
func TokenOf(r *http.Request) Token {
	return r.Context().Value(contextKey{}).(Token)
}

// Protect lets only requests in whose access token is good, and has all of the scopes.
func Protect(verify Verify, scopes ...string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme, sent, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			sent = strings.TrimSpace(sent)
			if !strings.EqualFold(scheme, "Bearer") || sent == "" {
				challenge(w, http.StatusUnauthorized, "Bearer")
				return
			}
			token, err := verify(r.Context(), sent)
			isMissing := func(scope string) bool { return !slices.Contains(token.Scopes, scope) }
			switch {
			case errors.Is(err, ErrInvalidToken):
				challenge(w, http.StatusUnauthorized, `Bearer error="invalid_token"`)
			case err != nil:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
			case slices.ContainsFunc(scopes, isMissing):
				needed := strings.Join(scopes, " ")
				challenge(w, http.StatusForbidden, fmt.Sprintf("Bearer error=%q, scope=%q", "insufficient_scope", needed))
			default:
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, token)))
			}
		})
	}
}

func challenge(w http.ResponseWriter, status int, value string) {
	w.Header().Set("WWW-Authenticate", value)
	w.WriteHeader(status)
}
