// SPDX-License-Identifier: Apache-2.0

//go:build !router

package upload

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// hasS3 reports whether this build supports S3.
const hasS3 = true

// newS3Signer returns a function that signs an S3 request with Signature Version 4. digest is that
// of the body.
func newS3Signer(t Target) func(r *http.Request, digest string) error {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	credentials := aws.Credentials{AccessKeyID: t.Key, SecretAccessKey: t.Secret, SessionToken: t.Session}
	return func(r *http.Request, digest string) error {
		return signer.SignHTTP(r.Context(), credentials, r, digest, "s3", t.Region, time.Now())
	}
}
