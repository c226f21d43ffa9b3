"""Live processes of release 0.13.2 next to ours: every role in either implementation on the same files and
directories.

Opt-in: `WALTZ_RELEASE_0_13_2=DIR` names the compiled release; without it the tests that need it are skipped
with one line. Nothing of the release is in this tree. DIR holds what a build of it leaves, in any of these
shapes:

    DIR/classes/           the compiled classes of its five modules (common, client, server, storage, tools), with the
                           resource waltz/waltz-version.properties
    DIR/lib/*.jar          what they depend on; the modules as jars may be here instead of in classes/
    DIR/*.jar              the same

All of it becomes the class path of one Java 17 (a JDK: the load of the Java client, `Load.java`, is compiled
at the start). How the programs are started is in `release.py`. The other options, all environment variables:

    WALTZ_LIVE_SWAPS       how many processes the test of swaps exchanges, 10 unless given
    WALTZ_LIVE_SEED        draws who is next and how it ends, beyond the first ten, which are fixed; 0 unless given

`release.py` finds the release and its programs, `mix.py` is a cluster of both kinds of processes, `loads.py`
and `Load.java` write to it, `segments.py` reads the files of the storage nodes without the engine, `judge.py`
holds them against what the writers know.
"""
