using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>The versions of one model.</summary>
/// <param name="Versions">Loaded versions by number.</param>
/// <param name="Aliases">Versions by alias.</param>
internal sealed record ModelVersions(IReadOnlyDictionary<int, IForecastModel> Versions, IReadOnlyDictionary<string, int> Aliases)
{
    private const string ChampionAlias = "champion";

    /// <summary>The version that a plain name refers to: the alias champion, or without one the newest.</summary>
    public int? Champion { get; } = Aliases.TryGetValue(ChampionAlias, out var version) ? version : Versions.Count > 0 ? Versions.Keys.Max() : null;

    /// <summary>Aliases of a version, sorted.</summary>
    public string[] GetAliases(int version) => [.. Aliases.Where(one => one.Value == version).Select(one => one.Key).Order(StringComparer.Ordinal)];
}

/// <summary>All loaded models. Immutable; a reload creates another one.</summary>
internal sealed class ModelRegistry
{
    private const string AliasFile = "aliases.json";
    private const int LongestNumber = 9;

    private readonly SortedDictionary<string, ModelVersions> _models;
    private readonly VersionLock? _lock;

    private ModelRegistry(SortedDictionary<string, ModelVersions> models, IReadOnlyList<QuantraError> problems, VersionLock? versions) =>
        (_models, Problems, _lock) = (models, problems, versions);

    /// <summary>Errors of versions that could not be loaded.</summary>
    public IReadOnlyList<QuantraError> Problems { get; }

    /// <summary>Loads the folder of one version, or all versions NAME/VERSION of a folder.</summary>
    /// <param name="folder">The folder.</param>
    /// <param name="versions">The versions that may be served; null = all.</param>
    /// <param name="cancellationToken">Checked before each version.</param>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: the version cannot be loaded. CONFIGURATION_INVALID: no version can.</exception>
    public static ModelRegistry Open(string folder, VersionLock? versions, CancellationToken cancellationToken) =>
        new ModelRegistry(new(StringComparer.Ordinal), [], versions).Reload(folder, cancellationToken);

    /// <summary>Loads the folder again with the same lock, and keeps unchanged versions.</summary>
    /// <exception cref="QuantraException">As <see cref="Open"/>.</exception>
    public ModelRegistry Reload(string folder, CancellationToken cancellationToken)
    {
        folder = Path.TrimEndingDirectorySeparator(Path.GetFullPath(folder));
        return ArtifactFiles.IsArtifact(folder) ? OpenOne(folder) : OpenAll(folder, cancellationToken);
    }

    /// <summary>Finds a model by "NAME", "NAME@VERSION" or "NAME@ALIAS"; an empty reference means the only model.</summary>
    /// <exception cref="QuantraException">MODEL_NOT_FOUND or VERSION_NOT_FOUND; the message lists what exists.</exception>
    public IForecastModel Find(string reference)
    {
        var at = reference.IndexOf('@', StringComparison.Ordinal);
        var (name, selector) = at < 0 ? (reference, null) : (reference[..at], reference[(at + 1)..]);
        if (name.Length == 0)
            name = GetOnlyName();
        if (!_models.TryGetValue(name, out var versions))
            throw CreateModelError(name);
        var version = selector is null ? versions.Champion : versions.Aliases.TryGetValue(selector, out var named) ? named : ParseVersion(selector);
        if (version is { } number && versions.Versions.TryGetValue(number, out var model))
            return model;
        throw selector is null
            ? CreateNotFoundError(QuantraReason.ModelNotFound, $"model {PythonText.Quote(name)} is not served: alias 'champion' names version {version}, which could not be loaded")
            : CreateVersionError(name, selector, versions);
    }

    private static QuantraException CreateVersionError(string name, string selector, ModelVersions versions)
    {
        var aliases = versions.Aliases.Where(one => versions.Versions.ContainsKey(one.Value)).Select(one => one.Key).Order(StringComparer.Ordinal);
        return CreateNotFoundError(
            QuantraReason.VersionNotFound,
            $"model {PythonText.Quote(name)} has no version or alias {PythonText.Quote(selector)}; it has versions {PythonText.List(versions.Versions.Keys.Order())} and aliases {PythonText.List(aliases)}");
    }

    /// <summary>Describes a model of this registry.</summary>
    public ModelInfo Info(IForecastModel model)
    {
        var versions = _models[model.Name];
        return model.Info(versions.GetAliases(model.Version), versions.Champion == model.Version);
    }

    /// <summary>Describes every version of every model, sorted by name and version.</summary>
    public IReadOnlyList<ModelInfo> Infos() => [.. _models.Values.SelectMany(one => one.Versions.OrderBy(pair => pair.Key)).Select(pair => Info(pair.Value))];

    private ModelRegistry OpenOne(string folder)
    {
        var (own, parent) = (Path.GetFileName(folder), Path.GetFileName(Path.GetDirectoryName(folder) ?? ""));
        var (name, version) = ParseVersion(own) is { } number && parent.Length > 0 ? (parent, number) : (own, 1);
        var model = Load(folder, name, version);
        var versions = new ModelVersions(new Dictionary<int, IForecastModel> { [version] = model }, new Dictionary<string, int>());
        return new(new(StringComparer.Ordinal) { [name] = versions }, [], _lock);
    }

    private ModelRegistry OpenAll(string folder, CancellationToken cancellationToken)
    {
        if (!Directory.Exists(folder))
            throw Invalid($"{folder}: there is no such folder; train a model into {Path.Combine(folder, "NAME", "1")} first");
        var (models, problems) = (new SortedDictionary<string, ModelVersions>(StringComparer.Ordinal), new List<QuantraError>());
        var names = Directory.EnumerateDirectories(folder).Select(path => Path.GetFileName(path)).Where(ModelName.IsValid);
        foreach (var name in names.Union(_lock?.Names ?? []).Order(StringComparer.Ordinal))
        {
            var modelFolder = Path.Combine(folder, name);
            var versions = OpenVersions(modelFolder, name, problems, cancellationToken);
            problems.AddRange(_lock?.Missing(name, modelFolder) ?? []);
            if (versions.Versions.Count > 0)
                models.Add(name, versions);
        }

        if (models.Count == 0)
        {
            var causes = string.Concat(problems.Select(problem => $"\n  {problem.Message}"));
            var isOneModel = Directory.EnumerateDirectories(folder).Any(path => ParseVersion(Path.GetFileName(path)) is not null && ArtifactFiles.IsArtifact(path));
            throw Invalid($"{folder}: holds no model that can be served; expected NAME/1 folders{(isOneModel ? $"; did you mean {Path.GetDirectoryName(folder)}?" : "")}{causes}");
        }

        return new(models, problems, _lock);
    }

    private ModelVersions OpenVersions(string modelFolder, string name, List<QuantraError> problems, CancellationToken cancellationToken)
    {
        var versions = new Dictionary<int, IForecastModel>();
        foreach (var folder in ListFolders(modelFolder, name, problems))
        {
            cancellationToken.ThrowIfCancellationRequested();
            if (ParseVersion(Path.GetFileName(folder)) is not { } version)
                continue;
            try
            {
                versions.Add(version, Load(folder, name, version));
            }
            catch (QuantraException problem)
            {
                problems.Add(problem.Error);
            }
        }

        return new(versions, versions.Count > 0 ? ReadAliases(modelFolder, name, problems) : new Dictionary<string, int>());
    }

    /// <summary>The subfolders of a model's folder; none if it was removed.</summary>
    private static IEnumerable<string> ListFolders(string modelFolder, string name, List<QuantraError> problems)
    {
        try
        {
            return Directory.Exists(modelFolder) ? Directory.GetDirectories(modelFolder).Order(StringComparer.Ordinal) : [];
        }
        catch (Exception problem) when (problem is IOException or UnauthorizedAccessException)
        {
            problems.Add(ArtifactError.Of(name, $"cannot be read: {problem.Message}").Error);
            return [];
        }
    }

    /// <summary>Loads a version, or keeps it if its manifest is unchanged.</summary>
    private IForecastModel Load(string folder, string name, int version)
    {
        try
        {
            if (_models.GetValueOrDefault(name)?.Versions.GetValueOrDefault(version) is { } present && ArtifactFiles.ComputeManifestHash(folder) == present.ManifestHash)
                return present;
            return LoadFolder(folder, name, version);
        }
        catch (QuantraException error)
        {
            throw OfVersion(name, version, error);
        }
    }

    private IForecastModel LoadFolder(string folder, string name, int version)
    {
        var files = ArtifactFiles.Read(folder);
        _lock?.Check(name, version, files.ManifestHash);
        return files.Members.Count > 0 ? EnsembleModel.Load(folder, files, name, version) : ManagedModel.Load(files, name, version);
    }

    private static Dictionary<string, int> ReadAliases(string modelFolder, string name, List<QuantraError> problems)
    {
        var (path, source) = (Path.Combine(modelFolder, AliasFile), $"{name}/{AliasFile}");
        if (!File.Exists(path))
            return [];
        try
        {
            var record = JsonRecord.Parse(File.ReadAllBytes(path), source);
            return record.Keys.ToDictionary(alias => alias, record.Integer, StringComparer.Ordinal);
        }
        catch (QuantraException problem)
        {
            problems.Add(problem.Error);
            return [];
        }
        catch (Exception problem) when (problem is IOException or UnauthorizedAccessException)
        {
            problems.Add(ArtifactError.Of(source, $"cannot be read: {problem.Message}").Error);
            return [];
        }
    }

    /// <summary>The number of a version; null if the text is not one. Each version has one spelling.</summary>
    public static int? ParseVersion(string text) =>
        text.Length is >= 1 and <= LongestNumber && (text[0] != '0' || text.Length == 1) && !text.AsSpan().ContainsAnyExceptInRange('0', '9')
            ? int.Parse(text, CultureInfo.InvariantCulture)
            : null;

    /// <summary>The spelling of a version.</summary>
    public static string Text(int version) => version.ToString(CultureInfo.InvariantCulture);

    /// <summary>The same error with the version's name.</summary>
    public static QuantraException OfVersion(string name, int version, QuantraException error)
    {
        var metadata = new Dictionary<string, string>(error.Metadata) { ["model"] = name, ["version"] = Text(version) };
        return (error.Error with { Message = $"{name}/{Text(version)}: {error.Message}", Metadata = metadata }).ToException(error);
    }

    /// <summary>The error of a folder or lock file that cannot be used.</summary>
    public static QuantraException Invalid(string message, Exception? cause = null) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException(cause);

    private static QuantraException CreateNotFoundError(string reason, string message) => new QuantraError(QuantraStatus.NotFound, reason, message).ToException();

    private QuantraException CreateModelError(string name) => Problems.FirstOrDefault(problem => problem.Metadata.GetValueOrDefault("model") == name) is { } problem
        ? CreateNotFoundError(QuantraReason.ModelNotFound, $"model {PythonText.Quote(name)} is not served: {problem.Message}")
        : CreateNotFoundError(QuantraReason.ModelNotFound, $"there is no model {PythonText.Quote(name)}; there are {PythonText.List(_models.Keys)}");

    private string GetOnlyName() => _models.Count == 1
        ? _models.Keys.First()
        : throw CreateNotFoundError(QuantraReason.ModelNotFound, $"no model is named, and several are served: {string.Join(", ", _models.Keys)}; name one, such as {_models.Keys.First()}");
}
