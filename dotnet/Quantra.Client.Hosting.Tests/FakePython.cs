namespace Quantra.Client.Hosting.Tests;

/// <summary>A virtual environment whose python is a shell script, for what a real one never does.</summary>
internal static class FakePython
{
    /// <summary>A script that goes on until its standard input ends, as a server does.</summary>
    public const string UntilTheEnd = "cat > /dev/null";

    private static int _made;

    /// <summary>Makes one; where there is no shell, the test is skipped.</summary>
    /// <param name="place">Where it is made, and removed in the end.</param>
    /// <param name="script">Of sh.</param>
    /// <returns>The environment's folder.</returns>
    public static string Make(Place place, string script)
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "the fake python is a shell script");
        var folder = Directory.CreateDirectory(place.PathOf($"fake-{Interlocked.Increment(ref _made)}")).FullName;
        File.WriteAllText(Path.Combine(folder, "pyvenv.cfg"), "");
        Directory.CreateDirectory(Path.Combine(folder, "bin"));
        var python = Path.Combine(folder, "bin", "python");
        File.WriteAllText(python, $"#!/bin/sh\n{script}\n");
        if (!OperatingSystem.IsWindows())
            File.SetUnixFileMode(python, UnixFileMode.UserRead | UnixFileMode.UserWrite | UnixFileMode.UserExecute);
        return folder;
    }
}
