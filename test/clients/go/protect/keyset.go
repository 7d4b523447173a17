package main

import (
	"context"
	"os"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
)

// NewKeySetVerifier fetches the key set, and again every five minutes until the context ends. A token that names an
// unknown key makes it fetch once more, but not as often as somebody likes.
func NewKeySetVerifier(ctx context.Context) (Verify, error) {
	fetchFirst := false
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{os.Getenv("GATEPOST_AUTH_URL") + "/v1/jwks"},
		keyfunc.Override{
			HTTPTimeout:               2 * time.Second,
			NoErrorReturnFirstHTTPReq: &fetchFirst,
			RateLimitWaitMax:          time.Second,
			RefreshInterval:           5 * time.Minute,
		})
	if err != nil {
		return nil, err
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{"RS256"}),
		jwt.WithIssuer(os.Getenv("GATEPOST_ISSUER")),
		jwt.WithAudience(os.Getenv("GATEPOST_AUDIENCE")),
		jwt.WithExpirationRequired(),
	)
	return func(ctx context.Context, token string) (string, error) {
		parsed, err := parser.Parse(token, keys.KeyfuncCtx(ctx))
		if err != nil || parsed.Header["typ"] != "at+jwt" {
			return "", ErrInvalidToken
		}
		return parsed.Claims.GetSubject()
	}, nil
}
