package agentapi

import (
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gpu-mode/kbgen/local/engine"
)

// Field numbers of a streamed message, from the agent's agentedge.proto.
const (
	fieldResume     = 2
	fieldPause      = 3
	fieldDisconnect = 4
	fieldJob        = 5
)

// frameOf encodes an order as one gRPC message with its frame header.
func frameOf(o engine.Order) []byte {
	var message []byte
	switch o.Action {
	case engine.ActionJob:
		message = field(fieldJob, field(1, field(1, []byte(o.JobID))))
	case engine.ActionPause:
		message = field(fieldPause, reason(o))
	case engine.ActionDisconnect:
		message = field(fieldDisconnect, reason(o))
	default:
		message = field(fieldResume, nil)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(frame, message...)
}

// field encodes a text or message.
func field(number protowire.Number, payload []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), payload)
}

// reason leaves an empty text out, as protobuf does.
func reason(o engine.Order) []byte {
	if o.Reason == "" {
		return nil
	}
	return field(1, []byte(o.Reason))
}

var errFrame = errors.New("the body is not one uncompressed gRPC message with an agent id")

// agentIDOf decodes the request of a stream: one frame around {1: agent id}.
// Fields it does not know are passed over.
func agentIDOf(body []byte) (string, error) {
	if len(body) < 5 || body[0] != 0 || int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-5) {
		return "", errFrame
	}
	id := ""
	for rest := body[5:]; len(rest) > 0; {
		number, kind, n := protowire.ConsumeField(rest)
		if n < 0 {
			return "", errFrame
		}
		if number == 1 && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(rest)
			value, _ := protowire.ConsumeBytes(rest[tag:])
			id = string(value)
		}
		rest = rest[n:]
	}
	if id == "" {
		return "", errFrame
	}
	return id, nil
}
