module github.com/gpu-mode/kbgen/tools/release

go 1.26.0
