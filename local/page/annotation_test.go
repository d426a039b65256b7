package page

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestAnnotation(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"empty", "", ""},
		{"line breaks", "one\ntwo\r\n\nthree", "<p>one<br>\ntwo</p>\n<p>three</p>\n"},
		{"heading", "## Verdict ##", "<h4>Verdict</h4>\n"},
		{"deep heading", "###### x", "<h6>x</h6>\n"},
		{"no heading", "#12 is open", "<p>#12 is open</p>\n"},
		{"bullets", "- a\n* b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"},
		{"numbers", "1. a\n2) b", "<ol>\n<li>a</li>\n<li>b</li>\n</ol>\n"},
		{"quote", "> a", "<blockquote>\na<br>\n</blockquote>\n"},
		{"code", "```c\na < b\n\n```\nend", "<pre><code>a &lt; b\n\n</code></pre>\n<p>end</p>\n"},
		{"open code", "```\n**x**", "<pre><code>**x**\n</code></pre>\n"},
		{"table", "|a|b|\n|:-|-:|\n|1|`2`|\nend", "<table><thead><tr><th scope=\"col\">a</th><th scope=\"col\">b</th></tr>\n</thead><tbody><tr><td>1</td><td><code>2</code></td></tr>\n</tbody></table>\n<p>end</p>\n"},
		{"marks", "**bold** and `a*b`", "<p><strong>bold</strong> and <code>a*b</code></p>\n"},
		{"link", "[it](https://example.com/?a=1&b=2)", "<p><a href=\"https://example.com/?a=1&amp;b=2\" rel=\"noopener noreferrer nofollow\">it</a></p>\n"},
		{"bare link", "see http://example.com.", "<p>see <a href=\"http://example.com.\" rel=\"noopener noreferrer nofollow\">http://example.com.</a></p>\n"},
		{"script link", "[x](javascript:alert)", "<p>[x](javascript:alert)</p>\n"},
		{"data link", "[x](data:text/html,y)", "<p>[x](data:text/html,y)</p>\n"},
		{"host-less link", "[x](//example.com)", "<p>[x](//example.com)</p>\n"},
		{"attribute", `[x](http://e.com/"onclick="alert)`, "<p><a href=\"http://e.com/&#34;onclick=&#34;alert\" rel=\"noopener noreferrer nofollow\">x</a></p>\n"},
		{"HTML", "<b>x</b>\n<script>y</script>", "<p>&lt;b&gt;x&lt;/b&gt;<br>\n&lt;script&gt;y&lt;/script&gt;</p>\n"},
		{"image", "![x](http://e.com/x.png)", "<p>!<a href=\"http://e.com/x.png\" rel=\"noopener noreferrer nofollow\">x</a></p>\n"},
	} {
		if got := string(renderAnnotation(tt.body)); got != tt.want {
			t.Errorf("%s: renderAnnotation(%q)\n got %q\nwant %q", tt.name, tt.body, got, tt.want)
		}
	}
}

// ownTags is every tag that an annotation may come out with.
var ownTags = regexp.MustCompile(`</?(p|h[3-6]|ul|ol|li|blockquote|pre|code|strong|table|thead|tbody|tr|td|a)>|<br>|</th>|<th scope="col">|<a href="https?://[^"<>]*" rel="noopener noreferrer nofollow">`)

func FuzzAnnotation(f *testing.F) {
	f.Add("# a\n- b\n```\nc\n```\n|d|\n|-|\n|e|\n> f **g** `h` [i](http://j)")
	f.Add("`<script>` **<img onerror=x>** [<b>](http://a/\"><c)")
	f.Fuzz(func(t *testing.T, body string) {
		rest := ownTags.ReplaceAllString(string(renderAnnotation(body)), "")
		if at := strings.IndexAny(rest, `<>"`); at >= 0 {
			t.Errorf("renderAnnotation(%q) holds foreign markup: %q", body, rest)
		}
	})
}

// A large body must not hold a page up, whatever is in it.
func TestSlowAnnotationTime(t *testing.T) {
	needSlow(t, "time")
	for _, unit := range []string{"[", "**", "`", "[a](", "**a `b [c](", "|-", "- \n", "> ", "#", "http://", "|\n|-\n", "```\n"} {
		began := time.Now()
		renderAnnotation(strings.Repeat(unit, (256<<10)/len(unit)))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("256 KiB of %q took %v", unit, took)
		}
	}
}
