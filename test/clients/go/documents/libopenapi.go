package documents

import (
	"errors"
	"net/http"
	"os"

	"github.com/pb33f/libopenapi"
	libvalidator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	liberrors "github.com/pb33f/libopenapi-validator/errors"
)

// lib reads a document with libopenapi, and judges traffic with libopenapi-validator.
type lib struct{ validator libvalidator.Validator }

func newLib(file string) (validator, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	document, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, err
	}
	made, problems := libvalidator.NewValidator(document,
		config.WithFormatAssertions(), config.WithURLEncodedBodyValidation())
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	_, invalid := made.ValidateDocument()
	return lib{made}, join(invalid)
}

func (l lib) validate(request *http.Request, response *http.Response, _ []byte) error {
	_, invalid := l.validator.ValidateHttpRequestResponse(request, response)
	return join(invalid)
}

func join(invalid []*liberrors.ValidationError) error {
	var all []error
	for _, problem := range invalid {
		all = append(all, problem)
		for _, schema := range problem.SchemaValidationErrors {
			all = append(all, schema)
		}
	}
	return errors.Join(all...)
}
