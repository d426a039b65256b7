// What the worker calls. It is compiled with the submission into one library.
#include <cstring>
#include <type_traits>

#include "task.h"

extern "C" void kbrun_call(const void* params, void* const* inputs, void* const* outputs) {
    static_assert(std::is_trivially_copyable<Params>::value, "Params is copied byte by byte");
    typename std::aligned_storage<sizeof(Params), alignof(Params)>::type copy;
    std::memcpy(&copy, params, sizeof(Params));
    call_kernel(*reinterpret_cast<const Params*>(&copy), inputs, outputs);
}
