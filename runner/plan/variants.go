package plan

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/gpu-mode/kbgen/schema"
)

// A Variant is a published harness in Python, known by the digest of its main
// file. All of them check themselves: submission, checker and clock share one
// process.
type Variant struct {
	Name  string // short, "pmpp_v2"
	Tasks string // where it comes from and who uses it, for people

	// InProcess: the submission runs in the process that writes the report.
	// False: it runs in a child whose answers come back as pickles, which run
	// code in the process that loads them. Either way it can reach the report.
	InProcess bool
}

// KnownHarness returns the variant whose main file has exactly this text.
func KnownHarness(text string) (Variant, bool) {
	sum := sha256.Sum256([]byte(text))
	v, known := variants[hex.EncodeToString(sum[:])]
	return v, known
}

// variantOf returns the variant that the payload's harness is, nil for none.
func variantOf(p *schema.Payload) *Variant {
	if main, there := p.Sources.Get(p.Main); there && p.Lang == schema.LangPython {
		if v, known := KnownHarness(main); known {
			return &v
		}
	}
	return nil
}

// variants are the main files that tasks of gpu-mode/reference-kernels (f83cb92)
// are published with, and the one of gpu-mode/kernelbot's own examples
// (4bdd839).
var variants = map[string]Variant{
	"c33495f16f64c20b7c3412efa66b5fe6760ec23021f66ff53432d95fc17e5e10": {Name: "pmpp", Tasks: "pmpp (8 tasks)", InProcess: true},
	"3f1aab085cd60125905bc3b466f288c48c32cf80e3af408a26dcd58e340412f2": {Name: "mla_decode", Tasks: "amd/mla-decode", InProcess: true},
	"7bbde85d8c4849c9ec8ca2c8a0adf4f59d2fc5bf1ea1f9de992e38f4d81b7c80": {Name: "pmpp_v2", Tasks: "pmpp_v2 (8 tasks)"},
	"7a762dc03ff2ea8e9b9767f48cc5259e45bd2dcd2fbc7b74f302376442ccd258": {Name: "amd", Tasks: "amd/fp8-mm, amd/identity, amd/moe"},
	"601424938e19e26622d84c7811daae47740376c152a21efa735e26b4866eaf55": {Name: "amd_202602", Tasks: "amd_202602/mxfp4-mm, amd_202602/mixed-mla"},
	"365f5182a7defad5f0370e94fad1d3d0c7171c8ebea8e6a05abefee58a1299ef": {Name: "moe_mxfp4", Tasks: "amd_202602/moe-mxfp4"},
	"94f5b0a0ff72e797c0c83c30478697a897dc2ac369f8cc8e07dbcd0272803f51": {Name: "trimul", Tasks: "bioml/trimul"},
	"666ddf88587c4018daa9e7696a5012b85646f2a284053bd0d308af6ec82b1652": {Name: "amd_distributed", Tasks: "amd_distributed (3 tasks)"},
	"df49d4032d021aaa7b21755ec977b33ab7bf33f5a5850632a3e8e2d86b8e1157": {Name: "kernelbot", Tasks: "kernelbot's own examples (5 tasks)"},
	"fef54da05e87a970d52eeac2665b593eb9b611895b03f008f0a15a8c2f27a9aa": {Name: "nvidia", Tasks: "nvidia/nvfp4_gemv"},
	"106951f2f0e9ea02f4c97fc3023ee2402e9d64fdf059b14ac3653b85062f4232": {Name: "nvidia_batch", Tasks: "nvidia/nvfp4_gemm, nvidia/nvfp4_dual_gemm, nvidia/modal_nvfp4_dual_gemm"},
	"8fbb9c03a7d57115c530f47c95b98cc589fda017e7a07d35890e5a09a18a7fe9": {Name: "nvidia_group", Tasks: "nvidia/nvfp4_group_gemm"},
	"ad577ad69c360c43eb68997ea17e2fe14b83848f7a446aa735e379060d4cba42": {Name: "eigh", Tasks: "linalg/eigh_py"},
	"3ee309171dbc484ce0fda4ac98d28f8739e6ff491f2ceff99db1dc8ba0fc50ac": {Name: "qr", Tasks: "linalg/qr_py, linalg/qr_v2"},
	"c4c6ec6dd8949768be9b876962f3b4b9be9ad163fc460fd786942372b5ba654a": {Name: "cholesky", Tasks: "linalg/cholesky_py", InProcess: true},
	"1cfede319ce057301146f3f8e8bea1aeaab31701bf19d88004aeb339c8c6981b": {Name: "helion", Tasks: "helion (5 tasks)"},
	"6d8a6235cf93f3a6bace03aaef3cf9382998a3f413f58e0a8538e4ac9a336978": {Name: "cross_entropy", Tasks: "princeton/cross_entropy_py", InProcess: true},
}
