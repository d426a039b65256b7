// Probe is what an image of the tests holds: it does what its arguments say, and
// what is said to a shell's -c.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	words := os.Args[1:]
	if len(words) > 1 && words[len(words)-2] == "-c" {
		words = strings.Fields(words[len(words)-1])
	}
	for _, word := range words {
		do, what, _ := strings.Cut(word, "=")
		switch do {
		case "exit":
			n, _ := strconv.Atoi(what)
			os.Exit(n)
		case "say":
			fmt.Println(what)
		case "id":
			fmt.Println(os.Getuid(), os.Getgid())
		case "status": // CapEff, NoNewPrivs and the like
			text, _ := os.ReadFile("/proc/self/status")
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, what+":") {
					fmt.Print(line)
				}
			}
		case "env":
			for _, entry := range os.Environ() {
				fmt.Println(entry)
			}
		case "read":
			text, err := os.ReadFile(what)
			fmt.Print(string(text), err, "\n")
		case "write":
			fmt.Println(os.WriteFile(what, []byte("written"), 0o600))
		case "cat": // until standard input ends
			io.Copy(os.Stdout, os.Stdin)
		case "hang":
			fmt.Println("hanging")
			time.Sleep(time.Hour)
		}
	}
}
