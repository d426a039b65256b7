package agentapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gpu-mode/kbgen/local/engine"
)

// StreamPath is where agents open their stream: at the root of the endpoint's
// host, whatever the endpoint's path is.
const StreamPath = "/agentedge.v1.AgentEdgeService/StreamPings"

// gRPC statuses that end a stream. After the first two the agent reconnects
// without polling in between; after the others it polls.
const (
	grpcOK               = "0"
	grpcDeadlineExceeded = "4"
	grpcUnavailable      = "14"
	grpcUnauthenticated  = "16"
)

// streamPings sends orders to one worker, as a gRPC server stream over
// HTTP/1.1: chunked frames, and the status in a trailer.
func (a *API) streamPings(w http.ResponseWriter, r *http.Request) {
	who, err := a.identify(r, session)
	if err != nil {
		a.fail(w, err)
		return
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		a.fail(w, engine.Refuse(http.StatusUnsupportedMediaType, "want the content type application/grpc"))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
	if err != nil {
		a.fail(w, engine.Refuse(engine.BadRequest, "reading the body: %v", err))
		return
	}
	id, err := agentIDOf(body)
	if err != nil {
		a.fail(w, engine.Refuse(engine.BadRequest, "%v", err))
		return
	}
	if id != who.agent.ID {
		a.fail(w, engine.Refuse(http.StatusForbidden, "the token belongs to another agent"))
		return
	}
	stream, err := a.engine.OpenStream(id)
	if err != nil {
		a.fail(w, err)
		return
	}
	defer stream.Close()
	ctx, cancel := context.WithTimeout(r.Context(), a.opts.StreamLimit)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	w.Header().Set("Content-Type", "application/grpc")
	status := a.send(ctx, w, stream, r.Header.Get("Authorization"))
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
}

// send writes orders until the stream ends, and returns its status.
func (a *API) send(ctx context.Context, w http.ResponseWriter, stream *engine.Stream, authorization string) string {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // a stream outlives the server's timeouts, if there are any
	for {
		order, err := stream.Next(ctx)
		switch {
		case errors.Is(err, engine.ErrStreamEnded):
			if _, alive := a.engine.AgentByToken(strings.TrimPrefix(authorization, "Token ")); !alive {
				return grpcUnauthenticated
			}
			return grpcOK // the agent has a newer stream
		case a.life.Err() != nil:
			return grpcUnavailable
		case err != nil:
			return grpcDeadlineExceeded
		}
		if _, err := w.Write(frameOf(order)); err != nil {
			return grpcUnavailable
		}
		if err := control.Flush(); err != nil {
			return grpcUnavailable
		}
	}
}
