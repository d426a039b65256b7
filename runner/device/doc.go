// Package device finds out which accelerators a machine has, what state they are
// in, and how they fared while a program was timed. It is the only importer of
// NVML, and knows nothing of submissions except who opens devices for them.
//
// NVIDIA's library is loaded in a process of its own, because a broken driver may
// hang or end whoever calls it, and a library that is too old ends the process
// from within. [Serve] is that process's work; [Probe] and start start it. Only
// a build with cgo has NVML inside. Without it [Serve] answers [ErrNoDriver], and
// nvidia-smi is read instead. AMD's devices are read from KFD's topology and
// sysfs, TPU chips from their device nodes; both without a process.
//
// Decided 2026-11: the released kbrun is static and small. A second build of the
// same program, with cgo and dynamic glibc, lies beside it as kbrun-nvml on
// machines with NVIDIA GPUs; the static one starts it for probing only. Turned
// down: cgo for the judge itself (it would no longer run on every image), dlopen
// without cgo (a C runtime inside a static program), a statically linked glibc
// (it crashes when the driver's library is loaded).
package device
