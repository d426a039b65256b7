package agentapi

import (
	"encoding/binary"
	"errors"

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
		job := appendField(nil, 1, []byte(o.JobID))
		message = appendField(nil, fieldJob, appendField(nil, 1, job))
	case engine.ActionPause:
		message = appendField(nil, fieldPause, appendText(nil, 1, o.Reason))
	case engine.ActionDisconnect:
		message = appendField(nil, fieldDisconnect, appendText(nil, 1, o.Reason))
	default:
		message = appendField(nil, fieldResume, nil)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	return append(frame, message...)
}

// lengthDelimited is the wire type of texts and messages.
const lengthDelimited = 2

func appendField(b []byte, number int, payload []byte) []byte {
	b = append(b, byte(number<<3|lengthDelimited))
	b = binary.AppendUvarint(b, uint64(len(payload)))
	return append(b, payload...)
}

// appendText leaves an empty text out, as protobuf does.
func appendText(b []byte, number int, s string) []byte {
	if s == "" {
		return b
	}
	return appendField(b, number, []byte(s))
}

var errFrame = errors.New("the body is not one uncompressed gRPC message with an agent id")

// agentIDOf decodes the request of a stream: one frame around {1: agent id}.
// Fields it does not know are passed over when they are length-delimited or
// varints.
func agentIDOf(body []byte) (string, error) {
	if len(body) < 5 || body[0] != 0 || int64(binary.BigEndian.Uint32(body[1:])) != int64(len(body)-5) {
		return "", errFrame
	}
	id := ""
	for rest := body[5:]; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		if n <= 0 {
			return "", errFrame
		}
		rest = rest[n:]
		value, n := binary.Uvarint(rest)
		if n <= 0 {
			return "", errFrame
		}
		rest = rest[n:]
		switch tag & 7 {
		case 0: // a varint
		case lengthDelimited:
			if value > uint64(len(rest)) {
				return "", errFrame
			}
			if tag>>3 == 1 {
				id = string(rest[:value])
			}
			rest = rest[value:]
		default:
			return "", errFrame
		}
	}
	if id == "" {
		return "", errFrame
	}
	return id, nil
}
