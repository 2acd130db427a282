// SPDX-License-Identifier: Apache-2.0
// Processes that execute a plan together: how they find one another, what they tell one another, and what happens when
// one is lost. Real processes of this computer, over TCP.
#include <fmt/format.h>
#include <signal.h>

#include "runtime/peers.hpp"
#include "runtime/sockets.hpp"
#include "sim/app/launch.hpp"
#include "sim/base/error.hpp"
#include "tests/app_testing.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;
using std::chrono::milliseconds;

namespace {

/// A port that nobody listens on now.
std::string free_place() { return fmt::format("127.0.0.1:{}", port_of(listen_on(0))); }

std::string all_of(Peers& peers) {
  std::string text;
  for (const std::string& s : peers.gather(fmt::format("<{}>", peers.process()))) text += s;
  return text;
}

}  // namespace

TEST_CASE("processes meet at a port or in a file and tell one another", "[peers]") {
  const TemporaryFolder folder;
  const std::string at = GENERATE(0, 1) == 0 ? free_place() : folder / "meet";
  // The identifier of a communicator has 128 bytes; zeros among them arrive as well.
  const std::string id = std::string(100, '\0') + std::string(28, 'x');
  const auto ends = in_processes(4, [&](int p) {
    Peers peers{{p, 4, at}};
    const std::string told = peers.from(2, p == 2 ? id : "");
    return fmt::format("{} {} {}", all_of(peers), told == id, all_of(peers).size());
  });
  for (const std::string& end : ends) CHECK(end == "<0><1><2><3> true 12");
  CHECK(!std::filesystem::exists(folder / "meet"));
}

TEST_CASE("texts that are larger than what a connection holds arrive", "[peers]") {
  const std::string at = free_place(), large(20 << 20, 'a');
  const auto ends = in_processes(3, [&](int p) {
    Peers peers{{p, 3, at}};
    std::size_t bytes = 0;
    for (const std::string& s : peers.gather(large)) bytes += s.size();
    return std::to_string(bytes);
  });
  for (const std::string& end : ends) CHECK(end == std::to_string(3 * large.size()));
}

TEST_CASE("a file that an earlier run has left is not taken for this one's", "[peers]") {
  const TemporaryFolder folder;
  const std::string at = folder.file("meet", fmt::format("{} {} 1234\n127.0.0.1\n", own_host(), port_of(listen_on(0))));
  const auto ends = in_processes(2, [&](int p) {
    if (p == 0) usleep(200'000);
    Peers peers{{p, 2, at}};
    return all_of(peers);
  });
  for (const std::string& end : ends) CHECK(end == "<0><1>");
}

TEST_CASE("who does not come is named, by all who have", "[peers]") {
  const std::string at = free_place();
  const auto ends = in_processes(4, [&](int p) {
    if (p == 1 || p == 3) return std::string{};
    Peers peers{{p, 4, at, milliseconds{400}}};
    return std::string{"met"};
  });
  for (const int p : {0, 2}) CHECK(ends[p] == "error: of 4 processes these have not come within 0.4 s: 1, 3");
  const auto alone = in_processes(1, [&](int) {
    Peers peers{{1, 2, at, milliseconds{200}}};
    return std::string{"met"};
  });
  CHECK(alone[0] == fmt::format("error: process 0 was not found at {} within 0.2 s", at));
}

TEST_CASE("processes that were started as something else are refused", "[peers]") {
  const std::string at = free_place();
  const auto ends = in_processes(2, [&](int p) {
    Peers peers{{p, p == 0 ? 2 : 3, at, milliseconds{2000}}};
    return std::string{"met"};
  });
  for (const std::string& end : ends) CHECK(end == "error: process 1 was started as one of 3, process 0 as one of 2");
  const auto twice = in_processes(3, [&](int p) {
    Peers peers{{std::min(p, 1), 3, at, milliseconds{2000}}};
    return std::string{"met"};
  });
  CHECK(twice[0] == "error: two processes were started as process 1");
}

TEST_CASE("a process that is lost ends the others with one line, whatever they wait for", "[peers]") {
  const std::string at = free_place();
  const bool killed = GENERATE(false, true);
  const auto ends = in_processes(4, [&](int p) {
    Peers peers{{p, 4, at}};
    (void)all_of(peers);
    if (p == 2) {
      if (killed) kill(getpid(), SIGKILL);
      throw DeviceError{"out of memory"};
    }
    if (p == 1) return all_of(peers);  // waits for what the others give
    while (true) {                     // looks after them beside its own work
      peers.check();
      usleep(1000);
    }
  });
  for (const int p : {0, 1, 3}) CHECK(ends[p] == "error: process 2 of 4 is gone: all of them end");
}

TEST_CASE("ranks are shared out evenly, in order", "[peers]") {
  const Peers one{{0, 1, ""}};
  CHECK(one.holds(RankId{7}, 8));
  const std::string at = free_place();
  const auto ends = in_processes(2, [&](int p) {
    const Peers peers{{p, 2, at}};
    std::string mine;
    for (std::size_t r = 0; r < 6; ++r) mine += peers.holds(RankId{r}, 6) ? 'x' : '.';
    try {
      (void)peers.process_of(RankId{0}, 5);
    } catch (const UserError& e) {
      mine += std::string{" "} + e.diagnostics().front().message;
    }
    return mine;
  });
  CHECK(ends[0] == "xxx... 2 processes cannot share 5 ranks");
  CHECK(ends[1] == "...xxx 2 processes cannot share 5 ranks");
}

TEST_CASE("launchers say which process of how many this is, and where they meet", "[peers]") {
  const MeetingPlace slurm = meeting_place("auto", "",
                                           {{"SLURM_PROCID", "3"},
                                            {"SLURM_NTASKS", "16"},
                                            {"SLURM_JOB_ID", "1000"},
                                            {"SLURM_STEP_ID", "2"},
                                            {"SLURM_STEP_NODELIST", "gpu[007-008,11],spare"}});
  CHECK(slurm.process == 3);
  CHECK(slurm.processes == 16);
  CHECK(slurm.at == "gpu007:31002");  // 20000 + (31·1000 + 2) mod 20000
  // The tasks of a step may be fewer than those of its job.
  CHECK(meeting_place(
            "auto", "",
            {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "16"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NODELIST", "a"}})
            .processes == 2);

  const Environment mpirun{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "4242/1"}};
  const MeetingPlace mpi = meeting_place("auto", "", mpirun);
  CHECK(mpi.process == 1);
  CHECK(mpi.at == ".orrery-peers-4242_1");
  CHECK(meeting_place("auto", "node1:5000", mpirun).at == "node1:5000");
  CHECK(meeting_place("auto", "f", {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}).processes == 4);
  const MeetingPlace given = meeting_place("2/3", "file", {});
  CHECK(given.process == 2);
  CHECK(given.processes == 3);

  CHECK_THROWS_WITH(meeting_place("auto", "", {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}),
                    Catch::StartsWith("nothing says where the processes meet"));
  CHECK_THROWS_WITH(meeting_place("auto", "", {}), Catch::StartsWith("--peers auto: no launcher has left"));
  for (const char* wrong : {"", "3", "3/3", "-1/2", "1/2/3", "a/b", "0/0"})
    CHECK_THROWS_WITH(meeting_place(wrong, "f", {}), Catch::StartsWith(fmt::format("--peers '{}'", wrong)));
}

TEST_CASE("the first host of a list as Slurm writes it", "[peers]") {
  CHECK(first_host("login") == "login");
  CHECK(first_host("a1,b[2-3]") == "a1");
  CHECK(first_host("gpu[003-010,12]") == "gpu003");
  CHECK(first_host("gpu[9,12]-ib,x") == "gpu9-ib");
  CHECK(first_host("") == "");
  CHECK(first_host("broken[1") == "");
}
