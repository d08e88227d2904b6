// The parts of the module `_cpu`, and what they share.
#ifndef JAXDALI_FFI_MODULE_PARTS_H_
#define JAXDALI_FFI_MODULE_PARTS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "ffi/common/thread_pool.h"

namespace jaxdali {

void DefineTables(nanobind::module_& m);   // enums and constants for Python; each is named once, in C++
void DefineImages(nanobind::module_& m);   // headers and decoding of images
void DefineFiles(nanobind::module_& m);    // reading of files
void DefineRecords(nanobind::module_& m);  // records of containers
void DefineRandom(nanobind::module_& m);   // shuffling and random numbers
void DefineSound(nanobind::module_& m);    // resampling and power of signals
void DefineSetup(nanobind::module_& m);    // what operators work out for a batch before programs run

template <class T>
using Vector = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using AnyArray = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

// The pool with this id, or an exception. Call it with the GIL held.
inline std::shared_ptr<ThreadPool> Pool(int id) {
  auto pool = ThreadPool::Get(id);
  if (!pool) throw nanobind::value_error("unknown thread pool");
  return pool;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_MODULE_PARTS_H_
