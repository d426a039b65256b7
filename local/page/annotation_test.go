package page

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// files are the artifacts of a build.
type files map[string]bool // by path: is it an image

func (f files) artifact(path string) (page, image string, ok bool) {
	isImage, ok := f[path]
	if isImage {
		image = "/a/" + path + "/image"
	}
	return "/a/" + path, image, ok
}

var someFiles = files{"out/result.json": false, "plot.png": true, `out/odd "name".txt`: false}

func TestAnnotation(t *testing.T) {
	const web = ` rel="nofollow noreferrer"`
	for _, tt := range []struct{ name, body, want string }{
		{"empty", "", ""},
		{"line breaks", "one\ntwo\r\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>\n"},
		{"heading", "## Verdict ##", "<h4>Verdict</h4>\n"},
		{"deep heading", "###### x", "<h6>x</h6>\n"},
		{"nested list", "- a\n  - b\n1. c", "<ul>\n<li>a\n<ul>\n<li>b</li>\n</ul>\n</li>\n</ul>\n<ol>\n<li>c</li>\n</ol>\n"},
		{"code", "```c\na < b\n\n```\nend", "<pre><code>a &lt; b\n\n</code></pre>\n<p>end</p>\n"},
		{"table", "|a|b|\n|:-|-:|\n|1|`2`|", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td><code>2</code></td>\n</tr>\n</tbody>\n</table>\n"},
		{"marks", "**bold** *it* ~~no~~ `a*b`", "<p><strong>bold</strong> <em>it</em> <del>no</del> <code>a*b</code></p>\n"},
		{"emoji", ":rocket: :tada: :not-one: 10:30:00", "<p>🚀 🎉 :not-one: 10:30:00</p>\n"},
		{"link", "[it](https://example.com/?a=1&b=2)", `<p><a href="https://example.com/?a=1&amp;b=2"` + web + ">it</a></p>\n"},
		{"bare link", "see http://example.com.", `<p>see <a href="http://example.com"` + web + ">http://example.com</a>.</p>\n"},
		{"artifact", "[r](artifact://out/result.json)", `<p><a href="/a/out/result.json"` + web + ">r</a></p>\n"},
		{"artifact, HTML", `<a href="artifact://out/odd%20%22name%22.txt">r</a>`, `<p><a href="/a/out/odd &#34;name&#34;.txt"` + web + ">r</a></p>\n"},
		{"no artifact", "[r](artifact://nothing)", `<p><a title="this build has no artifact nothing"` + web + ">r</a></p>\n"},
		{"artifact image", "![p](artifact://plot.png)", `<p><a href="/a/plot.png"><img src="/a/plot.png/image" alt="p"></a></p>` + "\n"},
		{"sized image", `<img src="artifact://plot.png" width="40" height="20" alt="p">`, `<a href="/a/plot.png"><img src="/a/plot.png/image" alt="p" width="40" height="20"></a>`},
		{"artifact that is no image", "![p](artifact://out/result.json)", `<p><a href="/a/out/result.json">out/result.json</a></p>` + "\n"},
		{"foreign image", "![x](http://e.com/x.png)", `<p><a href="http://e.com/x.png"` + web + ">x</a></p>\n"},
		{"details", "<details><summary>s</summary>\n\nx\n</details>", "<details><summary>s</summary>\n<p>x</p>\n</details>"},
		{"script link", "[x](javascript:alert)", "<p>x</p>\n"},
		{"data link", "[x](data:text/html,y)", "<p>x</p>\n"},
		{"host-less link", "[x](//example.com)", "<p>x</p>\n"},
		{"own page", "[x](/gpu-mode/p/builds/1/cancel)", "<p>x</p>\n"},
		{"data image", "![x](data:image/svg+xml,y)", "<p>x</p>\n"},
		{"HTML", `<b class="state good" id="main" style="x" onclick="y">x</b><script>y</script><form><button>z</button></form>`, "<p><b>x</b>z</p>\n"},
		{"a table of many bold cells", strings.Repeat("\n\n|a|\n|-|"+strings.Repeat("\n|**b**|", 1000), 2), strings.Repeat("<table>\n<thead>\n<tr>\n<th>a</th>\n</tr>\n</thead>\n<tbody>\n"+strings.Repeat("<tr>\n<td><strong>b</strong></td>\n</tr>\n", 1000)+"</tbody>\n</table>\n", 2)},
		{"more than can be parsed", strings.Repeat("*a_", 50_000), "<pre>" + strings.Repeat("*a_", 50_000) + "</pre>"},
		{"frames", "<iframe src=x></iframe><object data=x></object><meta http-equiv=refresh><base href=x><svg onload=x></svg>", ""},
	} {
		if got := string(renderAnnotation(tt.body, someFiles.artifact)); strings.TrimSpace(got) != strings.TrimSpace(tt.want) {
			t.Errorf("%s: renderAnnotation(%q)\n got %q\nwant %q", tt.name, tt.body, got, tt.want)
		}
	}
}

// ownTags is every tag that an annotation may come out with.
var ownTags = regexp.MustCompile(`</?(p|br|hr|h[3-6]|strong|b|em|i|del|s|u|su[bp]|small|mark|code|pre|kbd|samp|blockquote|[uo]l|li|d[ltd]|details|summary|t(able|head|body|foot|r|h|d)|caption|div|span|a)/?>|` +
	`<(a|ol|details|t[dh])( (href|title|start|open|colspan|rowspan|align|rel)="[^"<>]*")+>|<img src="/a/[^"<>]*" alt="[^"<>]*"( (width|height)="[0-9]{1,4}")*>`)

var badTarget = regexp.MustCompile(`(href|src)="(javascript|data|vbscript|file|//|/[^a])`)

func FuzzAnnotation(f *testing.F) {
	f.Add("# a\n- b\n```\nc\n```\n|d|\n|-|\n|e|\n> f **g** `h` [i](http://j)")
	f.Add("`<script>` **<img onerror=x>** [<b>](http://a/\"><c)")
	f.Add("![a](artifact://plot.png\"onerror=\"x) <img src='artifact://plot.png' alt='\"><x>'><a href=\"artifact://\"><x>\">")
	f.Fuzz(func(t *testing.T, body string) {
		out := string(renderAnnotation(body, someFiles.artifact))
		rest := ownTags.ReplaceAllString(out, "")
		if at := strings.IndexAny(rest, `<>`); at >= 0 {
			t.Errorf("renderAnnotation(%q) holds foreign markup: %q in %q", body, rest, out)
		}
		if badTarget.MatchString(out) {
			t.Errorf("renderAnnotation(%q) leads where it must not: %q", body, out)
		}
	})
}

func TestEmojiInLabels(t *testing.T) {
	for label, want := range map[string]string{":rocket: Deploy": "🚀 Deploy", "at 10:30:00": "at 10:30:00", ":no_such_thing: x": ":no_such_thing: x", "a::b": "a::b", ":+1:": "👍"} {
		if got := withEmoji(label); got != want {
			t.Errorf("withEmoji(%q) = %q, want %q", label, got, want)
		}
	}
}

// A large body must not hold a page up, whatever is in it.
func TestSlowAnnotationTime(t *testing.T) {
	testenv.NeedSlow(t)
	for _, unit := range []string{"[", "**", "`", "[a](", "**a `b [c](", "|-", "- \n", "> ", "#", "http://", "|\n|-\n", "```\n", "<", "<a ", ":", "&", "<details>", "![", "*a_", "    a\n", "- ", "+ ", "1. ", "~~a", ":a:", "[a]: b\n", "[^1]", "<b>", "\\", "a|b\n", "*a_\n", "*a_\n\n"} {
		began := time.Now()
		renderAnnotation(strings.Repeat(unit, (256<<10)/len(unit)), someFiles.artifact)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("256 KiB of %q took %v", unit, took)
		}
	}
}
