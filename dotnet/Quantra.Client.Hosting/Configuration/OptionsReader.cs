using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Configuration;

/// <summary>
/// Reads options from a configuration section. It uses a table instead of reflection, so that programs can be trimmed or compiled ahead of
/// time, and reports unknown settings.
/// </summary>
/// <typeparam name="T">Type of the options.</typeparam>
/// <param name="table">Setters by setting name, case-insensitive.</param>
internal sealed class OptionsReader<T>(IReadOnlyDictionary<string, Action<T, IConfigurationSection>> table)
    where T : class
{
    public IEnumerable<string> Names => table.Keys;

    /// <summary>Reads a section into options. Properties without a setting keep their value.</summary>
    /// <exception cref="OptionsValidationException">Lists all problems with their paths.</exception>
    public void Read(string name, IConfiguration section, T options)
    {
        var problems = FindProblems(section, options).ToArray();
        if (problems.Length > 0)
            throw new OptionsValidationException(name, typeof(T), problems);
    }

    private IEnumerable<string> FindProblems(IConfiguration section, T options)
    {
        if (section is IConfigurationSection { Path: var path } named && !named.Exists())
            yield return $"the configuration section {path} is missing or empty";
        foreach (var child in section.GetChildren())
        {
            if (FindProblem(child, options) is { } problem)
                yield return $"{child.Path}: {problem}";
        }
    }

    private string? FindProblem(IConfigurationSection setting, T options)
    {
        if (!table.TryGetValue(setting.Key, out var setter))
            return $"unknown setting; the settings are {string.Join(", ", table.Keys.Order(StringComparer.Ordinal))}";
        try
        {
            setter(options, setting);
            return null;
        }
        catch (Exception error) when (error is FormatException or ArgumentException)
        {
            return error.Message;
        }
    }
}
