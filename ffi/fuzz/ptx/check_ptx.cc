// Checks that the interpreter finds the faults of kernels that have them (faulty.cu), and none in kernels that are
// right.
//
//   check_ptx [KERNEL]   prints its message
#include <cstdio>
#include <string>
#include <vector>

#include "ffi/fuzz/ptx/faulty.cu"

// Runs all faulty kernels, or one of them, and compares the message of each with the expected one. Kernels that are
// right give no message, but must compute the right values.
int main(int argc, char** argv) {
  using namespace jaxdali;
  const std::string only = argc > 1 ? argv[1] : "";
  int failures = 0, checked = 0;
  for (const auto& [name, launch, expected] : faulty::Cases()) {
    if (!only.empty() && only != name) continue;
    checked++;
    std::vector<int32_t> data(4 * kThreads);
    const char* message = launch(data.data());
    const std::string text = message ? message : "";  // "": no fault
    bool good = expected.empty() ? text.empty() : text.find(expected) != text.npos && text.find(name) != text.npos;
    for (int k = 0; k < kThreads && good; k++) {  // what the right ones compute
      if (name == "Neighbours") good = data[static_cast<size_t>(2 * k)] == (k + 1) % kThreads;
      if (name == "Scan") good = data[static_cast<size_t>(2 * k)] == k * (k + 1) / 2;
      if (name == "Sum") good = data[0] == kThreads * (kThreads - 1);
    }
    if (!good || !only.empty())
      std::printf("%s: %s\n", name.c_str(), text.empty() ? "no fault found, or another result" : text.c_str());
    failures += !good;
  }
  const int known = ptx::DecodeAll();
  std::printf("%d small kernels, %d failures\n", checked, failures);
  if (known > 0) std::printf("all instructions of %d kernels are known\n", known);
  return checked == 0 || failures > 0 || known == 0;
}
