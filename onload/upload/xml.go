package upload

import (
	"crypto/md5" // what S3's ETags are made of, not a proof of anything
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/onload/transfer"
)

// errorXML is what S3 says is wrong.
type errorXML struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

// refusalFromXML is what an answer that is no success means, with S3's words.
func refusalFromXML(r *response) *transfer.Refusal {
	refusal := refusalByStatus(r.Response, time.Now())
	var x struct {
		XMLName xml.Name `xml:"Error"`
		errorXML
	}
	if xml.Unmarshal(r.body, &x) != nil || x.Code == "" {
		return refusal
	}
	hint := fault.HintOf(refusal.Err)
	switch x.Code {
	case "SlowDown", "ConditionalRequestConflict", "RequestTimeout", "InternalError", "ServiceUnavailable":
		refusal.Verdict = transfer.Retry
	case "XAmzContentSHA256Mismatch", "BadDigest":
		refusal.Verdict = transfer.Restart // it changed meanwhile
	case "NoSuchUpload":
		refusal.Verdict = transfer.Restart
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		hint = "is this the bucket's region, and its endpoint?"
	case "SignatureDoesNotMatch", "InvalidAccessKeyId":
		hint = "are key and secret right?"
	case "RequestTimeTooSkewed":
		hint = "is this device's clock right?"
	case "NoSuchBucket":
		hint = "is there such a bucket? The URL is https://host/bucket/name/, or https://bucket.host/name/"
	case "PreconditionFailed":
		return &transfer.Refusal{Verdict: transfer.Final, Err: fault.New(fault.Exists, errors.New("there is an object of that name already"), hint)}
	}
	if r.StatusCode == http.StatusForbidden {
		refusal.Verdict = transfer.Final
	}
	refusal.Err = fault.New(fault.KindOf(refusal.Err), fmt.Errorf("%w: %s: %s", refusal.Err, text.Printable(x.Code), text.Printable(x.Message)), hint)
	return refusal
}

// multipartETag is the ETag of an object in parts: the digest of their digests, and how many.
func multipartETag(parts map[int]part) string {
	sum := md5.New()
	for _, n := range slices.Sorted(maps.Keys(parts)) {
		b, err := hex.DecodeString(trimQuotes(parts[n].ETag))
		if err != nil {
			return ""
		}
		sum.Write(b)
	}
	return fmt.Sprintf("%x-%d", sum.Sum(nil), len(parts))
}
