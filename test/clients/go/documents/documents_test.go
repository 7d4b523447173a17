// Package documents holds both documents against the validators of two Go libraries, and the traffic of a walk as well.
package documents

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatepost.example/clients/openapi"
	"gatepost.example/clients/world"
)

// validator has read one document, which names the server that it was served by.
type validator interface {
	validate(request *http.Request, response *http.Response, body []byte) error
}

func TestKinOpenAPI(t *testing.T) { test(t, newKin) }
func TestLibopenapi(t *testing.T) { test(t, newLib) }

func test(t *testing.T, read func(file string) (validator, error)) {
	validators := map[string]validator{}
	for url, name := range map[string]string{world.AuthURL: "auth", world.PushURL: "push"} {
		for _, extension := range []string{".yaml", ".json"} {
			made, err := read(filepath.Join(os.Getenv("GATEPOST_DOCUMENTS"), name+extension))
			if err != nil {
				t.Fatalf("%s%s: %s", name, extension, err)
			}
			validators[url] = made
		}
	}
	watching := &watch{t: t, validators: validators}
	openapi.Walk(t, watching)
	if watching.seen < 20 {
		t.Fatalf("only %d exchanges were judged", watching.seen)
	}
}

// watch lets every request and its answer be judged.
type watch struct {
	t          *testing.T
	validators map[string]validator
	seen       int
}

func (w *watch) RoundTrip(request *http.Request) (*http.Response, error) {
	body := []byte{}
	if request.Body != nil {
		body, _ = io.ReadAll(request.Body)
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	for url, validator := range w.validators {
		if !strings.HasPrefix(request.URL.String(), url) {
			continue
		}
		w.seen++
		request.Body = io.NopCloser(bytes.NewReader(body))
		response.Body = io.NopCloser(bytes.NewReader(answer))
		if err := validator.validate(request, response, answer); err != nil {
			w.t.Errorf("%s %s, answered with %d: %s", request.Method, request.URL, response.StatusCode, err)
		}
	}
	response.Body = io.NopCloser(bytes.NewReader(answer))
	return response, nil
}
