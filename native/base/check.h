// The one error the native core throws. `code` is one of the kebab-case codes of inferno/errors.py;
// bindings/module.cpp turns it into that class.
#pragma once
#include <exception>
#include <string>
#include <utility>

namespace inferno {

struct Error : std::exception {
    std::string code, message, hint;
    Error(std::string code, std::string message, std::string hint = "")
        : code(std::move(code)), message(std::move(message)), hint(std::move(hint)) {}
    const char* what() const noexcept override { return message.c_str(); }
};

// A promise between Python and the core was broken: a bug of ours, not the user's doing.
inline void check(bool holds, const char* what) {
    if (!holds) throw Error("native-error", std::string("Broken precondition: ") + what);
}

}  // namespace inferno
