// Makes inputs for vectoradd and checks outputs. Runs in the judge only, on the
// host; kbrun.h comes from kbrun.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kbrun.h"
#include "task.h"

constexpr double kTolerance = 1e-6;  // relative to the range of the summands

inline kbrun::Input<Params> generate_input(const kbrun::Case& c) {
    const std::size_t n = std::size_t(c.integer("n", 1, 1 << 28));
    const double range = double(c.integer("range", 1, 1 << 20));  // the summands lie in [-range, range)
    kbrun::Input<Params> in{{n}, {}, {}};
    std::mt19937_64 draw(c.seed());
    std::vector<float> vector(n);
    for (int summand = 0; summand < 2; summand++) {
        for (float& x : vector) x = float((double(draw() >> 11) * 0x1p-52 - 1) * range);
        in.add(vector);
    }
    in.expect<float>(n);
    return in;
}

// What is wrong, "" when nothing is. Nobody is told where there is a secret seed.
inline std::string check_implementation(const kbrun::Case& c, const kbrun::Input<Params>& in, const std::vector<kbrun::Array>& out) {
    const double tolerance = kTolerance * c.number("range");
    const float *a = in.arrays[0].as<float>(), *b = in.arrays[1].as<float>(), *got = out[0].as<float>();
    for (std::size_t i = 0; i < in.params.n; i++) {
        const double want = double(a[i]) + double(b[i]);
        if (!(std::fabs(want - got[i]) <= tolerance)) {  // so written, NaN is wrong too
            char text[160];
            std::snprintf(text, sizeof text, "element %zu of %zu: got %.9g, want %.9g", i, in.params.n, double(got[i]), want);
            return text;
        }
    }
    return "";
}
