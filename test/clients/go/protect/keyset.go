package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
)

const (
	maxAge = 5 * time.Minute
	// Between fetches that fail, or that unknown keys cause.
	cooldown = 30 * time.Second
)

var errKeySet = errors.New("nobody has looked for the key since the request came")

var parser = jwt.NewParser(
	jwt.WithValidMethods([]string{"RS256"}),
	jwt.WithIssuer(setting("GATEPOST_ISSUER")),
	jwt.WithAudience(setting("GATEPOST_AUDIENCE")),
	jwt.WithExpirationRequired(),
	jwt.WithLeeway(time.Minute),
)

// An empty issuer would be any.
func setting(name string) string {
	value := os.Getenv(name)
	if value == "" {
		log.Fatalf("%s is not set: tokens cannot be checked without it", name)
	}
	return value
}

type claims struct {
	jwt.RegisteredClaims
	Client string `json:"client_id"`
	Scope  string `json:"scope"`
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
	// A client that acts for no user.
	case found.Subject == found.Client:
		return Token{}, ErrInvalidToken
	}
	return Token{found.Subject, strings.Fields(found.Scope)}, nil
}

type fetchedKeySet struct {
	jwkset.Storage
	at time.Time
}

var (
	latest   atomic.Pointer[fetchedKeySet]
	fetching sync.Mutex
	// Of whoever holds fetching.
	tried time.Time
)

func keyOf(ctx context.Context, token *jwt.Token) (any, error) {
	id, ok := token.Header["kid"].(string)
	if !ok {
		return nil, ErrInvalidToken
	}
	before := latest.Load()
	// One request fetches; the others go on with the keys that are known.
	if before != nil && time.Since(before.at) > maxAge && fetching.TryLock() {
		fetch()
		fetching.Unlock()
	}
	if key := find(ctx, id); key != nil {
		return key, nil
	}
	if latest.Load() == before {
		fetching.Lock()
		fetch()
		fetching.Unlock()
	}
	if latest.Load() == before {
		return nil, errKeySet
	}
	if key := find(ctx, id); key != nil {
		return key, nil
	}
	return nil, ErrInvalidToken
}

func find(ctx context.Context, id string) any {
	if set := latest.Load(); set != nil {
		if key, err := set.KeyRead(ctx, id); err == nil {
			return key.Key()
		}
	}
	return nil
}

// fetch is for whoever holds fetching. Whatever goes wrong, the known keys serve on. Forged tokens cannot make it fetch
// more often.
func fetch() {
	now, pause := time.Now(), cooldown
	if latest.Load() == nil {
		pause = time.Second
	}
	if now.Sub(tried) < pause {
		return
	}
	tried = now
	url := os.Getenv("GATEPOST_AUTH_URL") + "/v1/jwks"
	set, err := jwkset.NewStorageFromHTTP(url, jwkset.HTTPClientStorageOptions{HTTPTimeout: 2 * time.Second})
	if err == nil {
		var keys []jwkset.JWK
		keys, err = set.KeyReadAll(context.Background())
		if err == nil && len(keys) == 0 {
			err = errors.New("it has no keys")
		}
	}
	if err != nil {
		log.Printf("%s gave no key set: %v", url, err)
		return
	}
	latest.Store(&fetchedKeySet{set, now})
}
