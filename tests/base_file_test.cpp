// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/base/yaml.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
namespace fs = std::filesystem;

namespace {

/// A new folder that goes away at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "orrery_base_file_test_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::size_t num_files() const { return std::distance(fs::directory_iterator{path_}, fs::directory_iterator{}); }

 private:
  fs::path path_;
};

template <class Function>
std::string device_error(Function&& function) {
  try {
    function();
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a file is written whole and read back", "[base][file]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a");
  const std::string text(3'000'000, 'x');
  write_file_atomically(path, "old");
  write_file_atomically(path, text);
  CHECK(read_file(path) == text);
  CHECK(folder.num_files() == 1);  // no temporary file is left
}

TEST_CASE("a file of another process's interrupted write is no obstacle", "[base][file]") {
  const TemporaryFolder folder;
  std::ofstream{folder.file("a." + std::to_string(::getpid()) + "-0.tmp")} << "stale";
  write_file_atomically(folder.file("a"), "new");
  CHECK(read_file(folder.file("a")) == "new");
}

TEST_CASE("documents are read from files", "[base][file]") {
  const TemporaryFolder folder;
  write_file_atomically(folder.file("a.json"), "{\"a\": 1}");
  CHECK(to_flow_yaml(read_yaml(folder.file("a.json"))) == "{a: 1}");
  CHECK(to_flow_yaml(read_json(folder.file("a.json"))) == "{a: 1}");
}

TEST_CASE("a file that cannot be read says why", "[base][file][error]") {
  const TemporaryFolder folder;
  CHECK(user_error([] { read_file("/no/such/file"); }) == "cannot read '/no/such/file': No such file or directory");
  CHECK(user_error([] { read_yaml("/tmp"); }) == "cannot read '/tmp': Is a directory");
  write_file_atomically(folder.file("a"), "12345");
  CHECK(user_error([&] { read_file(folder.file("a"), 4); }) ==
        "cannot read '" + folder.file("a") + "': it is longer than 4 bytes");
  CHECK(read_file(folder.file("a"), 5) == "12345");
}

TEST_CASE("a file that cannot be written says why and leaves nothing behind", "[base][file][error]") {
  const TemporaryFolder folder;
  CHECK(device_error([] { write_file_atomically("/no/such/file", ""); }) ==
        "cannot write '/no/such/file': No such file or directory");
  fs::create_directory(folder.file("d"));
  CHECK(device_error([&] { write_file_atomically(folder.file("d"), "x"); }) ==
        "cannot write '" + folder.file("d") + "': Is a directory");
  CHECK(folder.num_files() == 1);
  CHECK(device_error([] { write_file_atomically("/dev/full", "x"); }) ==
        "cannot write '/dev/full': No space left on device");
}

TEST_CASE("pipes and devices are written directly", "[base][file]") {
  const TemporaryFolder folder;
  const std::string pipe = folder.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(pipe, "x");
  char got = 0;
  CHECK(read(reader, &got, 1) == 1);
  CHECK(got == 'x');
  CHECK(fs::is_fifo(pipe));  // no file was put in its place
  close(reader);
}
