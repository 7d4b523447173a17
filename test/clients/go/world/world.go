// Package world is what every walk needs: where the servers are, and users that nobody else has.
package world

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"os"
	"testing"
	"time"
)

// The addresses and secrets of the running servers, as `npm run test:clients` puts them into the environment.
var (
	AuthURL          = os.Getenv("GATEPOST_AUTH_URL")
	PushURL          = os.Getenv("GATEPOST_PUSH_URL")
	GRPCAddress      = os.Getenv("GATEPOST_GRPC")
	InternalSecret   = os.Getenv("GATEPOST_INTERNAL_SECRET")
	BackendSecret    = os.Getenv("GATEPOST_BACKEND_SECRET")
	APISecret        = os.Getenv("GATEPOST_API_SECRET")
	BackofficeSecret = os.Getenv("GATEPOST_BACKOFFICE_SECRET")
)

// Clients of development mode.
const (
	Internal   = "internal"
	Backend    = "backend"
	API        = "api"
	Backoffice = "backoffice"
)

// NewID returns an id that no earlier call has returned.
func NewID(prefix string) string {
	return fmt.Sprintf("%s-%s", prefix, rand.Text())
}

// NewPhone returns a German mobile number in E.164 form, one of a hundred million.
func NewPhone() string {
	number, err := rand.Int(rand.Reader, big.NewInt(100_000_000))
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("+49151%08d", number)
}

// Equal ends the test unless both are the same.
func Equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// Value is what an optional member holds; a missing one ends the test.
func Value[T any](t *testing.T, what string, member *T) T {
	t.Helper()
	if member == nil {
		t.Fatalf("%s is missing", what)
	}
	return *member
}

// Eventually asks again until the answer is true, or ends the test after 30 seconds.
func Eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ask(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 seconds: %s", what)
		}
	}
}
