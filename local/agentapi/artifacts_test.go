package agentapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
)

func TestArtifacts(t *testing.T) {
	w := newRig(t, Options{})
	b := w.build(`steps: [{command: "true", key: one}]`)
	path, token, _ := w.running(b)
	body := `{"id":"b1","multipart_supported":true,"upload_destination":"","artifacts":[
		{"path":"a.txt","file_size":3,"content_type":"text/plain"},{"path":"dir/big.bin","file_size":5}]}`
	created := w.want(200, "", token, "POST", path+"/artifacts", body)
	if again := w.want(200, "", token, "POST", path+"/artifacts", body); again.text != created.text {
		t.Errorf("the batch repeated: %s, want %s", again.text, created.text)
	}
	ids := created.get("artifact_ids").([]any)
	var action map[string]any
	for _, id := range ids {
		form := created.get("per_artifact_instructions").(map[string]any)[id.(string)].(map[string]any)
		action = form["action"].(map[string]any)
		if action["method"] != "POST" || action["file_input"] != "file" || !strings.HasPrefix(action["path"].(string), "/upload/") {
			t.Errorf("form instructions: %v", form)
		}
	}
	update := fmt.Sprintf(`{"artifacts":[{"id":%q,"state":"finished"}]}`, ids[1])
	w.want(422, "bytes have not been uploaded", token, "PUT", path+"/artifacts", update)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, _ := m.CreateFormFile("file", "big.bin")
	_, _ = part.Write([]byte("12345"))
	_ = m.Close()
	if resp, err := http.Post(action["url"].(string)+action["path"].(string), m.FormDataContentType(), &form); err != nil || resp.StatusCode != 204 {
		t.Fatalf("upload: %v %v", resp, err)
	}
	w.want(200, "", token, "PUT", path+"/artifacts", update)
	w.want(422, "not known", token, "PUT", path+"/artifacts", fmt.Sprintf(`{"artifacts":[{"id":%q,"state":"new"}]}`, ids[0]))
	w.want(404, "No artifact", token, "PUT", path+"/artifacts", `{"artifacts":[{"id":"nope","state":"error"}]}`)
	w.want(200, "", token, "PUT", path+"/artifacts", fmt.Sprintf(`{"artifacts":[{"id":%q,"state":"error"}]}`, ids[0]))

	search := "/v3/builds/" + b.ID + "/artifacts/search?state=finished&query="
	found := w.want(200, "dir/big.bin", token, "GET", search+"**/*", "")
	var list []map[string]any
	if err := json.Unmarshal([]byte(found.text), &list); err != nil || len(list) != 1 {
		t.Fatalf("search: %s", found.text)
	}
	if resp, err := http.Get(list[0]["url"].(string)); err != nil || resp.StatusCode != 200 {
		t.Errorf("download: %v %v", resp, err)
	}
	w.want(200, "[]", token, "GET", search+"*.txt", "")
	w.want(200, "big.bin", token, "GET", search+"dir/*&scope=one", "")
	w.want(200, "[]", token, "GET", search+"dir/*&scope=other", "")
	w.want(422, "not a glob", token, "GET", search+"[", "")

	w.want(422, "want 1 to 30", token, "POST", path+"/artifacts", `{"id":"b2","artifacts":[]}`)
	w.want(422, "want 1 to 30", token, "POST", path+"/artifacts", `{"id":"b3","artifacts":[`+strings.Repeat(`{"path":"a"},`, 30)+`{"path":"a"}]}`)
	w.want(422, "upload destinations", token, "POST", path+"/artifacts", `{"id":"b4","upload_destination":"s3://x","artifacts":[{"path":"a"}]}`)
	w.want(422, "artifacts[0]", token, "POST", path+"/artifacts", `{"id":"b5","artifacts":[{"path":"a","file_size":-1}]}`)
	w.want(422, "artifacts[0]", token, "POST", path+"/artifacts", `{"id":"b6","artifacts":[{"file_size":1}]}`)
	w.want(200, `"file_input"`, token, "POST", path+"/artifacts", `{"id":"b7","artifacts":[{"path":"a","file_size":9}]}`)
	if w.blob.Leaks() != 0 {
		t.Errorf("Leaks() = %d", w.blob.Leaks())
	}
}
