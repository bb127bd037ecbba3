namespace Quantra.Client.Tests;

/// <summary>Other programs' files of bars: C# reads them as Python does, or not at all.</summary>
public sealed class ExportTests(Doors doors)
{
    /// <summary>Files that Python refuses and C# reads: one has a bad letter in a column that is ignored, one a bar that no model takes.</summary>
    private static readonly string[] Harmless = ["latin.csv", "half_empty.csv"];

    /// <summary>Files with the columns of a plain one under usual other names, or with a form of its own.</summary>
    private const int LeastRead = 20;

    [Fact]
    public void A_file_is_read_as_Python_reads_it_or_refused_with_the_command_that_makes_it_readable()
    {
        var read = 0;
        foreach (var folder in Directory.EnumerateDirectories(doors.PathOf("exports")))
        {
            var path = Assert.Single(Directory.GetFiles(Path.Combine(folder, "source")));
            var name = Path.GetFileName(path);
            var (panel, problem) = Read(path);
            var clean = Path.Combine(folder, "clean.csv");
            if (panel is null)
                Assert.EndsWith($"""`quantra check "{name}" --fix clean.csv`""", problem, StringComparison.Ordinal);
            else if (File.Exists(clean))
                Assert.True(panel.Equals(BarPanel.ReadCsv(clean)), path);
            else
                Assert.Contains(name, Harmless);
            read += panel is null ? 0 : 1;
        }

        Assert.InRange(read, LeastRead, int.MaxValue);
    }

    private static (BarPanel? Panel, string Problem) Read(string path)
    {
        try
        {
            return (BarPanel.ReadCsv(path), "");
        }
        catch (QuantraException refusal)
        {
            return (null, refusal.Message);
        }
    }
}
