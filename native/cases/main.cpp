// inferno_cases isas                     the instruction sets that this CPU has, best first
// inferno_cases cases ISA                lines `name count hash`: every kernel case
// inferno_cases rates ISA                lines `format rate`: multiply-adds a second of a prefill, best of a second
// inferno_cases logits MODEL ISA ID...   the logits of all ids, raw, by a frozen model
//
// What tests run where there is no Python: under an emulator, or on another machine.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "cases/frozen_model.h"
#include "cases/kernel_cases.h"
#include "kernels/dispatch.h"
#include "runtime/executor.h"
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#endif

using namespace inferno;

static void print_isas() {
    for (const std::string& isa : supported_isas()) std::printf("%s\n", isa.c_str());
}

// Whatever this CPU has: a program may be linked with tables that are emulated.
static const KernelTable& table_named(std::string_view isa) {
#define X(name) \
    if (isa == #name) return kernels_##name();
    INFERNO_ISAS(X)
#undef X
    return choose_kernels(isa);
}

static void print_cases(const char* isa) {
    for (const KernelCases& cases : kernel_cases(table_named(isa)))
        std::printf("%s\t%lld\t%016llx\n", cases.name.c_str(), (long long)cases.count, (unsigned long long)cases.hash);
}

static void print_rates(const char* isa) {
    for (int f = 0; f < kNumFormats; ++f)
        std::printf("%s\t%.1f G/s\n", format_info((Format)f).name, matmul_rate(table_named(isa), (Format)f) / 1e9);
}

static void print_logits(const char* path, const char* isa, int count, char** ids) {
    std::ifstream file(path, std::ios::binary);
    check(file.good(), "the model can be opened");
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const auto model = thaw(bytes);
    const auto pool = std::make_shared<ThreadPool>(2);
    Executor executor(model, pool, table_named(isa));
    const Plan& plan = model->plan();
    KvCache cache(std::make_shared<PagePool>(plan.num_layers, plan.kv_heads, plan.head_dim, CacheType::f16));
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(std::atoi(ids[i]));
    executor.forward({{&cache, tokens.data(), count, Logits::all}}, [&] {
        for (int row = 0; row < executor.num_logits(); ++row)
            std::fwrite(executor.logits(row), sizeof(float), (size_t)plan.vocab_size, stdout);
    });
}

int main(int argc, char** argv) {
#if defined(_WIN32)
    _setmode(_fileno(stdout), _O_BINARY);  // or each byte that is a newline becomes two
#endif
    const std::string_view what = argc > 1 ? argv[1] : "";
    try {
        if (what == "isas") {
            print_isas();
        } else if (what == "cases" && argc == 3) {
            print_cases(argv[2]);
        } else if (what == "rates" && argc == 3) {
            print_rates(argv[2]);
        } else if (what == "logits" && argc > 4) {
            print_logits(argv[2], argv[3], argc - 4, argv + 4);
        } else {
            std::fprintf(stderr, "usage: inferno_cases isas | cases ISA | rates ISA | logits MODEL ISA ID...\n");
            return 2;
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
