using Microsoft.Extensions.Configuration;
using Microsoft.Extensions.Options;

namespace Quantra.Client.Hosting.Configuration;

/// <summary>
/// What a section of a configuration may hold. It is read by this table and not by reflection, so that a program may be trimmed or
/// compiled ahead of time, and a name that is not in the table is an error and no setting that silently has no effect.
/// </summary>
/// <typeparam name="T">The options that it becomes.</typeparam>
/// <param name="table">By the name of a setting, in any case, what sets it.</param>
internal sealed class Settings<T>(IReadOnlyDictionary<string, Action<T, IConfigurationSection>> table)
    where T : class
{
    /// <summary>The names of all settings.</summary>
    public IEnumerable<string> Names => table.Keys;

    /// <summary>Reads a section into options.</summary>
    /// <param name="name">Of the options.</param>
    /// <param name="from">A section, or all of a configuration.</param>
    /// <param name="into">What is not in the section stays as it is.</param>
    /// <exception cref="OptionsValidationException">Telling all that is wrong, with its place.</exception>
    public void Read(string name, IConfiguration from, T into)
    {
        var problems = Problems(from, into).ToArray();
        if (problems.Length > 0)
            throw new OptionsValidationException(name, typeof(T), problems);
    }

    private IEnumerable<string> Problems(IConfiguration from, T into)
    {
        if (from is IConfigurationSection { Path: var path } section && !section.Exists())
            yield return $"the configuration has no section {path}, or nothing in it";
        foreach (var child in from.GetChildren())
        {
            if (Problem(child, into) is { } problem)
                yield return $"{child.Path}: {problem}";
        }
    }

    private string? Problem(IConfigurationSection setting, T into)
    {
        if (!table.TryGetValue(setting.Key, out var set))
            return $"there is no such setting; there are {string.Join(", ", table.Keys.Order(StringComparer.Ordinal))}";
        try
        {
            set(into, setting);
            return null;
        }
        catch (Exception error) when (error is FormatException or ArgumentException)
        {
            return error.Message;
        }
    }
}
