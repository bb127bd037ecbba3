namespace Quantra.Client.Hosting.Tests;

/// <summary>A virtual environment whose python is a shell script, for behaviour that a real one does not show on demand.</summary>
internal static class FakePython
{
    /// <summary>A script that runs until standard input is closed, like a server.</summary>
    public const string UntilTheEnd = "cat > /dev/null";

    private static int _made;

    /// <summary>Creates an environment and returns its folder. Skips the test on Windows.</summary>
    public static string Make(HostingFixture fixture, string script)
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "the fake python is a shell script");
        var folder = Directory.CreateDirectory(fixture.PathOf($"fake-{Interlocked.Increment(ref _made)}")).FullName;
        File.WriteAllText(Path.Combine(folder, "pyvenv.cfg"), "");
        Directory.CreateDirectory(Path.Combine(folder, "bin"));
        var python = Path.Combine(folder, "bin", "python");
        File.WriteAllText(python, $"#!/bin/sh\n{script}\n");
        if (!OperatingSystem.IsWindows())
            File.SetUnixFileMode(python, UnixFileMode.UserRead | UnixFileMode.UserWrite | UnixFileMode.UserExecute);
        return folder;
    }
}
