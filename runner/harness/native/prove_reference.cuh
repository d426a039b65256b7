// Makes inputs for the C++ task of kbrun prove and checks outputs.
#pragma once

#include <random>

#include "kbrun.h"
#include "task.h"

inline kbrun::Input<Params> generate_input(const kbrun::Case& c) {
    kbrun::Input<Params> in{{{}, unsigned(c.integer("us", 1, 1 << 20)), 4096}, {}, {}};
    c.text("check").copy(in.params.check, sizeof in.params.check - 1);
    std::mt19937_64 draw(c.seed());
    std::vector<float> a(in.params.n);
    for (float& x : a) x = float(draw() % 1000);
    in.add(a);
    in.expect<float>(a.size());
    return in;
}

inline std::string check_implementation(const kbrun::Case&, const kbrun::Input<Params>& in, const std::vector<kbrun::Array>& out) {
    for (std::size_t i = 0; i < in.params.n; i++)
        if (out[0].as<float>()[i] != in.arrays[0].as<float>()[i] + 1) return "the values differ";
    return "";
}
