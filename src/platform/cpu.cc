#include "platform/cpu.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace nibble {
namespace {

struct NamedIsa {
  Isa isa;
  std::string_view name;
};
constexpr std::array kIsas = {
    NamedIsa{Isa::kScalar, "scalar"},   NamedIsa{Isa::kAvx2, "avx2"},
    NamedIsa{Isa::kAvxVnni, "avxvnni"}, NamedIsa{Isa::kAvx512, "avx512"},
    NamedIsa{Isa::kNeonDot, "neon"},    NamedIsa{Isa::kAvx512Vnni, "avx512vnni"},
};

#if defined(__x86_64__)

constexpr bool HasAll(uint32_t reg, uint32_t bits) { return (reg & bits) == bits; }

// Register state that the operating system saves: a processor may have AVX-512 that a hypervisor or
// kernel does not let us use.
uint64_t SavedState() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// What a sanitizer's build left out (src/kernels/CMakeLists.txt).
#ifdef NIBBLE_WITHOUT_AVXVNNI
constexpr bool kWithAvxVnni = false;
#else
constexpr bool kWithAvxVnni = true;
#endif
#ifdef NIBBLE_WITHOUT_AVX512
constexpr bool kWithAvx512 = false;
#else
constexpr bool kWithAvx512 = true;
#endif
#ifdef NIBBLE_WITHOUT_AVX512VNNI
constexpr bool kWithAvx512Vnni = false;
#else
constexpr bool kWithAvx512Vnni = true;
#endif

// Everything that the compiler flags of cmake/NibbleTargets.cmake allow it to use.
void AppendX86(std::vector<Isa>& isas) {
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return;
  constexpr uint32_t kOsXsave = bit_OSXSAVE;
  if (!HasAll(c, kOsXsave)) return;
  if (!HasAll(c, bit_FMA | bit_F16C | bit_MOVBE | bit_POPCNT | bit_PCLMUL | bit_AES | bit_AVX)) {
    return;
  }
  const uint64_t state = SavedState();
  constexpr uint64_t kAvxState = 0x6;
  constexpr uint64_t kAvx512State = 0xe6;
  if ((state & kAvxState) != kAvxState) return;
  if (!__get_cpuid(0x80000001, &a, &b, &c, &d) || !HasAll(c, bit_LZCNT)) return;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
  if (!HasAll(b, bit_AVX2 | bit_BMI | bit_BMI2)) return;
  const uint32_t subleaves = a;
  const bool avx512 =
      (state & kAvx512State) == kAvx512State &&
      HasAll(b, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL);
  const bool vnni = HasAll(c, bit_AVX512VNNI | bit_AVX512VBMI);
  isas.push_back(Isa::kAvx2);
  constexpr uint32_t kAvxVnniBit = 1u << 4;
  if (kWithAvxVnni && subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
      HasAll(a, kAvxVnniBit)) {
    isas.push_back(Isa::kAvxVnni);
  }
  if (kWithAvx512 && avx512) isas.push_back(Isa::kAvx512);
  if (kWithAvx512Vnni && avx512 && vnni) isas.push_back(Isa::kAvx512Vnni);
}

#endif

}  // namespace

std::string_view IsaName(Isa isa) {
  const auto* it = std::ranges::find(kIsas, isa, &NamedIsa::isa);
  return it == kIsas.end() ? "unknown" : it->name;
}

std::optional<Isa> IsaFromName(std::string_view name) {
  const auto* it = std::ranges::find(kIsas, name, &NamedIsa::name);
  if (it == kIsas.end()) return std::nullopt;
  return it->isa;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kScalar};
#if defined(__x86_64__)
  AppendX86(isas);
#elif defined(__aarch64__)
  const unsigned long caps = getauxval(AT_HWCAP);
  constexpr unsigned long kNeeded = HWCAP_ASIMD | HWCAP_ASIMDDP | HWCAP_FPHP | HWCAP_ASIMDHP;
  if ((caps & kNeeded) == kNeeded) isas.push_back(Isa::kNeonDot);
#endif
  return isas;
}

bool CpuVendorIsAmd() {
#if defined(__x86_64__)
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b == signature_AMD_ebx;
#else
  return false;
#endif
}

Result<Isa> ChooseIsa() {
  const std::vector<Isa> supported = SupportedIsas();
  const char* wanted = std::getenv("NIBBLE_ISA");
  if (wanted == nullptr || *wanted == '\0') return supported.back();
  std::string names;
  for (Isa isa : supported) {
    if (!names.empty()) names += ", ";
    names += IsaName(isa);
  }
  const std::optional<Isa> isa = IsaFromName(wanted);
  if (!isa) return BadInput("NIBBLE_ISA: expected one of {}, found '{}'", names, wanted);
  if (std::ranges::find(supported, *isa) == supported.end()) {
    return BadInput("NIBBLE_ISA: this machine cannot run '{}'; it has {}", wanted, names);
  }
  return *isa;
}

}  // namespace nibble
