// Where a fuzzer's choices come from: random numbers (mutator.h), or the first bytes of an input (InputChoices), so
// that libFuzzer's mutations change them, too.
#ifndef JAXDALI_FFI_FUZZ_CHOICES_H_
#define JAXDALI_FFI_FUZZ_CHOICES_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace jaxdali {

using Data = std::vector<uint8_t>;

class Choices {
 public:
  virtual ~Choices() = default;
  // A number from 0 to n - 1; 0 if n is 0.
  virtual int below(size_t n) = 0;
};

// An input of libFuzzer: 32 bytes for choices, two for each, and the file. Later choices are 0.
class InputChoices : public Choices {
 public:
  static constexpr size_t kSize = 32;

  InputChoices(const uint8_t* input, size_t size) : input_(input), size_(size) {}

  int below(size_t n) override {
    if (n == 0 || used_ + 2 > kSize || used_ + 2 > size_) return 0;
    const size_t number = input_[used_] | static_cast<size_t>(input_[used_ + 1]) << 8;
    used_ += 2;
    return static_cast<int>(number % n);
  }
  // What follows the choices.
  Data file() const { return size_ > kSize ? Data(input_ + kSize, input_ + size_) : Data(); }

 private:
  const uint8_t* input_;
  size_t size_, used_ = 0;
};

// Ends a harness, so that libFuzzer keeps the input.
[[noreturn]] inline void Fail() {
  std::fflush(stdout);
  std::abort();
}

// A heap block of exactly this size, so that AddressSanitizer sees an access one byte too far.
template <class T>
std::unique_ptr<T[]> Exact(size_t n) {
  return std::unique_ptr<T[]>(new T[n]);  // not make_unique: uninitialised, and no byte larger than n
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_CHOICES_H_
