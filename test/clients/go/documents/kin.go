package documents

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// kin reads a document with kin-openapi.
type kin struct{ router routers.Router }

func newKin(file string) (validator, error) {
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	if err := document.Validate(loader.Context, openapi3.EnableSchemaFormatValidation()); err != nil {
		return nil, err
	}
	router, err := gorillamux.NewRouter(document)
	return kin{router}, err
}

// options say that credentials are judged by the server and that an answer of a status that is not described is wrong.
var options = &openapi3filter.Options{
	AuthenticationFunc:                openapi3filter.NoopAuthenticationFunc,
	IncludeResponseStatus:             true,
	MultiError:                        true,
	RejectWhenRequestBodyNotSpecified: true,
}

func (k kin) validate(request *http.Request, response *http.Response, body []byte) error {
	route, parameters, err := k.router.FindRoute(request)
	if err != nil {
		return err
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: parameters, Route: route, Options: options,
	}
	// kin-openapi decodes no parameter whose schema has a `not`, which the id of an identity has.
	err = openapi3filter.ValidateRequest(request.Context(), input)
	if err != nil && !strings.Contains(err.Error(), "not implemented: decoding 'not'") {
		return err
	}
	return openapi3filter.ValidateResponse(request.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 response.StatusCode,
		Header:                 response.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                options,
	})
}
