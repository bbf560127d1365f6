// SPDX-License-Identifier: Apache-2.0
#include "bindings.hpp"

namespace nb = nanobind;

namespace {

PyObject* error_type = nullptr;

const char* code_name(gnomon::ErrorCode code) {
  switch (code) {
    case gnomon::ErrorCode::invalid_argument:
      return "invalid_argument";
    case gnomon::ErrorCode::out_of_range:
      return "out_of_range";
    case gnomon::ErrorCode::unsupported:
      return "unsupported";
    case gnomon::ErrorCode::malformed:
      return "malformed";
    default:
      return "io";
  }
}

}  // namespace

void bind_error(nb::module_& module) {
  error_type = PyErr_NewExceptionWithDoc("gnomon.Error",
                                         "Raised by every function of gnomon. `code` is 'invalid_argument', 'out_of_range', 'unsupported', "
                                         "'malformed' or 'io'; the message names the argument, what was expected and what was got.",
                                         PyExc_ValueError, nullptr);
  module.attr("Error") = nb::handle(error_type);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const gnomon::Error& error) {
      nb::object exception = nb::borrow(error_type)(error.what());
      exception.attr("code") = code_name(error.code());
      PyErr_SetObject(error_type, exception.ptr());
    }
  });
}
