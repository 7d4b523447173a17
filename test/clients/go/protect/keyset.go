package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/singleflight"
)

// The key set is fetched again when it is this old, and for a token that names an unknown key.
const (
	maxAge           = 5 * time.Minute
	maxAgeIfNotFound = 30 * time.Second
)

var errKeySet = errors.New("the key set cannot be fetched")

var parser = jwt.NewParser(
	jwt.WithValidMethods([]string{"RS256"}),
	jwt.WithIssuer(os.Getenv("GATEPOST_ISSUER")),
	jwt.WithAudience(os.Getenv("GATEPOST_AUDIENCE")),
	jwt.WithExpirationRequired(),
	jwt.WithLeeway(time.Minute),
)

type claims struct {
	jwt.RegisteredClaims
	Scope string `json:"scope"`
}

// VerifyByKeySet asks auth for nothing but the key set.
func VerifyByKeySet(ctx context.Context, token string) (Token, error) {
	var found claims
	parsed, err := parser.ParseWithClaims(token, &found, func(token *jwt.Token) (any, error) { return keyOf(ctx, token) })
	switch {
	case errors.Is(err, errKeySet):
		return Token{}, err
	case err != nil || parsed.Header["typ"] != "at+jwt" || found.Subject == "":
		return Token{}, ErrInvalidToken
	}
	return Token{found.Subject, strings.Fields(found.Scope)}, nil
}

func keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	id, _ := token.Header["kid"].(string)
	for _, age := range []time.Duration{maxAge, maxAgeIfNotFound} {
		set, err := keySet(age)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errKeySet, err)
		}
		if key, err := set.KeyRead(ctx, id); err == nil {
			return key.Key(), nil
		}
	}
	return nil, ErrInvalidToken
}

type fetchedKeySet struct {
	jwkset.Storage
	at time.Time
}

var (
	latest  atomic.Pointer[fetchedKeySet]
	fetches singleflight.Group
)

// keySet is not older than that; requests that need a newer one at the same time share one fetch.
func keySet(age time.Duration) (jwkset.Storage, error) {
	if set := latest.Load(); set != nil && time.Since(set.at) < age {
		return set, nil
	}
	set, err, _ := fetches.Do("", func() (any, error) {
		url := os.Getenv("GATEPOST_AUTH_URL") + "/v1/jwks"
		keys, err := jwkset.NewStorageFromHTTP(url, jwkset.HTTPClientStorageOptions{HTTPTimeout: 2 * time.Second})
		if err != nil {
			return nil, err
		}
		set := &fetchedKeySet{keys, time.Now()}
		latest.Store(set)
		return set, nil
	})
	if err != nil {
		return nil, err
	}
	return set.(*fetchedKeySet), nil
}
