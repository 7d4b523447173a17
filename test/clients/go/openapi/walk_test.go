package openapi

import (
	"net/http"
	"testing"
)

func TestWalk(t *testing.T) { Walk(t, http.DefaultTransport) }
