#include "gpu/peermem.hpp"

#include <array>

namespace zerohop::gpu {

std::string find_peermem(const std::filesystem::path& sys) {
  struct Candidate {
    const char* module;
    const char* path;
  };
  constexpr std::array kCandidates{
      Candidate{"nvidia_peermem", "module/nvidia_peermem"},
      Candidate{"nv_peer_mem", "module/nv_peer_mem"},
      Candidate{"nv_mem", "kernel/mm/memory_peers/nv_mem"},
      Candidate{"nv_mem_nc", "kernel/mm/memory_peers/nv_mem_nc"},
  };
  for (const auto& [module, path] : kCandidates) {
    std::error_code absent;
    if (std::filesystem::exists(sys / path / "version", absent)) return module;
  }
  return "";
}

}  // namespace zerohop::gpu
