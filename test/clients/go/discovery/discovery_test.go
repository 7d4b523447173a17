// Package discovery finds auth by its issuer, as clients and resource servers of OpenID Connect do.
package discovery

import (
	"os"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"gatepost.example/clients/world"
)

// TestGoOIDC does all that go-oidc can do without ID tokens: it reads the discovery document, fetches the key set that
// it names, and verifies an access token, of which it compares signature, issuer, audience and time.
func TestGoOIDC(t *testing.T) {
	issuer := os.Getenv("GATEPOST_ISSUER")
	provider, err := oidc.NewProvider(t.Context(), issuer)
	if err != nil {
		t.Fatal(err)
	}
	world.Equal(t, "token endpoint", provider.Endpoint().TokenURL, world.AuthURL+"/oauth2/v1/tokens")

	user := world.CreateUser(t, "correct horse battery go-oidc")
	token := world.AccessToken(t, world.Backend, world.BackendSecret, user, "correct horse battery go-oidc")
	verified, err := provider.Verifier(&oidc.Config{ClientID: world.Backend}).Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	world.Equal(t, "subject", verified.Subject, user)
	world.Equal(t, "issuer", verified.Issuer, issuer)

	if _, err := provider.Verifier(&oidc.Config{ClientID: "somebody-else"}).Verify(t.Context(), token); err == nil {
		t.Fatal("a token for another audience was taken")
	}
	if _, err := oidc.NewProvider(t.Context(), issuer+"/elsewhere"); err == nil {
		t.Fatal("an issuer was taken that is none")
	}
}
