//go:build !router

package upload

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// hasS3 reports whether this build sends to S3.
const hasS3 = true

// newSigner returns a function that signs a request to S3, whose body has the digest, with
// Signature Version 4.
func newSigner(t Target) func(r *http.Request, digest string) error {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	who := aws.Credentials{AccessKeyID: t.Key, SecretAccessKey: t.Secret, SessionToken: t.Session}
	return func(r *http.Request, digest string) error {
		return signer.SignHTTP(r.Context(), who, r, digest, "s3", t.Region, time.Now())
	}
}
