#pragma once

#include <concepts>
#include <type_traits>

namespace nibble {

template <class Signature>
class FunctionRef;

// A call to something that outlives it; for parameters. Empty unless made from a callable.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  FunctionRef() = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& fn)  // NOLINT(google-explicit-constructor): a lambda is given as it is
      : object_(const_cast<void*>(static_cast<const void*>(&fn))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}

  explicit operator bool() const { return call_ != nullptr; }
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

}  // namespace nibble
